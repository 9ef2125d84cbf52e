"""Examples are encoded and decoded as protobuf does it, and as TensorFlow writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.example import Feature, decode_example, encode_example
from elasticdl.errors import UserError
from elasticdl.wire import example_pb2

int64 = st.integers(-(2**63), 2**63 - 1)
feature = st.one_of(
    st.lists(int64, min_size=1, max_size=40).map(lambda values: np.array(values, np.int64)),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40).map(
        lambda values: np.array(values, np.float32)
    ),
    st.lists(st.binary(max_size=200), min_size=1, max_size=5),
)


def same(first: Mapping[str, Feature], second: Mapping[str, Feature]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) and type(first[name]) is type(second[name])
        for name in first
    )


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=20), feature, max_size=6))
def test_encoded_example_decodes_to_the_same(features: dict[str, Feature]) -> None:
    assert same(decode_example(encode_example(features)), features)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=20), feature, max_size=6))
def test_protobuf_reads_what_we_write_and_we_read_what_it_writes(features: dict[str, Feature]) -> None:
    message = example_pb2.Example.FromString(encode_example(features))
    assert set(message.features.feature) == set(features)
    for name, value in features.items():
        written = message.features.feature[name]
        kind = written.WhichOneof("kind")
        assert list(getattr(written, kind).value) == list(value)
    assert same(decode_example(message.SerializeToString()), features)


def test_an_example_that_tensorflow_wrote() -> None:
    record = bytes.fromhex(
        "0a400a190a056c6162656c12101a0e0a0cfdffffffffffffffff01ac02"
        "0a150a05696d616765120c120a0a080000c03f000000400a0c0a017312070a050a01610a00"
    )
    features: dict[str, Any] = decode_example(record)
    assert features["label"].tolist() == [-3, 300]
    assert features["label"].dtype == np.int64
    assert features["image"].tolist() == [1.5, 2.0]
    assert features["image"].dtype == np.float32
    assert features["s"] == [b"a", b""]


def test_numbers_that_are_not_packed() -> None:
    # Old writers put a tag before each number.
    floats = b"\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40"
    value = b"\x12" + bytes([len(floats)]) + floats
    entry = b"\x0a\x01x\x12" + bytes([len(value)]) + value
    entries = b"\x0a" + bytes([len(entry)]) + entry
    record = b"\x0a" + bytes([len(entries)]) + entries
    features: dict[str, Any] = decode_example(record)
    assert features["x"].tolist() == [1.0, 2.0]


def test_supported_feature_types_are_encoded() -> None:
    features: dict[str, Any] = decode_example(
        encode_example(
            {
                "int": 7,
                "negative": -1,
                "float": 0.5,
                "bool": True,
                "numpy": np.float64(2.5),
                "small": np.array([200, 3], np.uint8),
                "matrix": np.arange(6.0).reshape(2, 3),
                "text": "é",
                "bytes": b"\x00",
                "list": [1, 2],
                "texts": ["a", "b"],
                "array of texts": np.array(["a", "b"]),
                "none": None,
                "empty": [],
            }
        )
    )
    assert features["int"].tolist() == [7]
    assert features["negative"].tolist() == [-1]
    assert features["float"].tolist() == [0.5]
    assert features["bool"].tolist() == [1]
    assert features["numpy"].tolist() == [2.5]
    assert features["small"].tolist() == [200, 3]
    assert features["matrix"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert features["text"] == ["é".encode()]
    assert features["bytes"] == [b"\x00"]
    assert features["list"].tolist() == [1, 2]
    assert features["texts"] == features["array of texts"] == [b"a", b"b"]
    assert features["none"] == features["empty"] == []


@pytest.mark.parametrize(
    "value",
    [object(), {"a": 1}, 2**63, np.array([2**63], np.uint64), [[1], [2, 3]], ["a", 1], np.array([1j])],
)
def test_unsupported_feature_is_named(value: object) -> None:
    with pytest.raises(UserError, match="'the feature'"):
        encode_example({"the feature": value})


def test_decoded_arrays_can_be_written_to() -> None:
    image: Any = decode_example(encode_example({"image": np.zeros(4, np.float32)}))["image"]
    image += 1
    assert image.tolist() == [1, 1, 1, 1]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_other_bytes_are_decoded_as_protobuf_does_or_refused(record: bytes) -> None:
    try:
        message = example_pb2.Example.FromString(record)
    except Exception:  # noqa: BLE001 - whatever protobuf raises for bytes that are no message
        with pytest.raises(ValueError, match="not an Example"):
            decode_example(record)
        return
    assert set(decode_example(record)) == set(message.features.feature)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_examples_are_decoded_as_protobuf_does_or_refused(data: st.DataObject) -> None:
    record = bytearray(
        encode_example({"image": np.ones(5, np.float32), "label": [3, 500], "s": [b"ab", b""]})
    )
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        message = example_pb2.Example.FromString(bytes(record))
    except Exception:  # noqa: BLE001 - whatever protobuf raises for bytes that are no message
        with pytest.raises(ValueError, match="not an Example"):
            decode_example(bytes(record))
        return
    decoded = decode_example(bytes(record))
    assert set(decoded) == set(message.features.feature)
    for name, value in message.features.feature.items():
        kind = value.WhichOneof("kind")
        expected = list(getattr(value, kind).value) if kind else []
        np.testing.assert_array_equal(list(decoded[name]), expected)
