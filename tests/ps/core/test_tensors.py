"""Arrays survive the wire exactly, and what is not an array is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elasticdl.ps.core.tensors import DTYPES, Array, from_wire, from_wire_all, to_wire, to_wire_all
from elasticdl.wire import master_pb2

arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: hnp.arrays(np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
)


@given(arrays)
def test_an_array_comes_back_as_it_was(array: Array) -> None:
    tensor = master_pb2.Tensor.FromString(to_wire("x", array).SerializeToString())
    back = from_wire(tensor)
    assert tensor.name == "x"
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_order_and_endianness_of_the_sender_do_not_matter() -> None:
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    for array in (plain, np.asfortranarray(plain), plain.astype(">f4"), np.stack([plain, plain], 1)[:, 0]):
        assert to_wire("x", array).data == plain.tobytes()


def test_reading_does_not_copy() -> None:
    tensor = to_wire("x", np.arange(1000.0))
    first, second = from_wire(tensor), from_wire(tensor)
    assert not first.flags.owndata
    assert not first.flags.writeable
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float12"}, "unknown dtype 'float12'"),
        ({"dtype": "object"}, "unknown dtype"),
        ({"dtype": "O"}, "unknown dtype"),
        ({"dtype": ""}, "unknown dtype"),
        ({"data": bytes(23)}, "should have 24 bytes and has 23"),
        ({"data": bytes(25)}, "should have 24 bytes and has 25"),
        ({"shape": [2, 4]}, "should have 32 bytes and has 24"),
        ({"shape": [-2, -3]}, "impossible shape"),
        ({"shape": [1 << 62, 1 << 62]}, "should have"),
        ({"shape": []}, "should have 4 bytes"),
    ],
)
def test_malformed_tensors_are_refused_by_name(changes: dict[str, object], message: str) -> None:
    fields: dict[str, object] = {
        "name": "dense/kernel",
        "dtype": "float32",
        "shape": [2, 3],
        "data": bytes(24),
    }
    fields.update(changes)
    with pytest.raises(ValueError, match=f"dense/kernel.*{message}"):
        from_wire(master_pb2.Tensor(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "array", [np.array(["text"]), np.array([None]), np.array([1j]), np.array(["2020"], "M8[D]")]
)
def test_other_dtypes_are_refused(array: Array) -> None:
    with pytest.raises(ValueError, match="x has dtype"):
        to_wire("x", array)


def test_a_name_may_come_only_once() -> None:
    tensors = to_wire_all({"a": np.zeros(1), "b": np.ones(2)})
    assert list(from_wire_all(tensors)) == ["a", "b"]
    with pytest.raises(ValueError, match="a comes twice"):
        from_wire_all([*tensors, tensors[0]])
