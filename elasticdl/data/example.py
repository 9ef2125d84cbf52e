"""Records that are `tf.train.Example` messages, without TensorFlow.

An Example is a dict of named features; a feature is a flat list of float32, of int64 or of byte strings.
Feeds decode one such record after the other, so decoding is done by hand for the way all writers lay these
messages out (packed numbers, one field of a kind): the numbers of an image are taken as they lie there
instead of one by one. Whatever is laid out in another way is left to protobuf.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserError

Feature = NDArray[Any] | list[bytes]

# Tags of protobuf fields: number << 3 | wire type, which is 2 (a length and so many bytes) for all of them.
_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A
_INT64_MAX = (1 << 63) - 1
_FLOAT = struct.Struct("<f")
# The prefix of a feature with one number; and tag and length of every short field.
_ONE_FLOAT = bytes((_FIELD_2, 6, _FIELD_1, 4))
_BYTES = [bytes((value,)) for value in range(0x80)]
_HEADS = {tag: [bytes((tag, length)) for length in range(0x80)] for tag in (_FIELD_1, _FIELD_2, _FIELD_3)}


class _Unusual(Exception):
    """An Example in a valid but unusual layout."""


def decode_example(record: bytes) -> dict[str, Feature]:
    """The features of a serialized Example: arrays of float32 or int64, or lists of byte strings, all flat.

    Raises `ValueError` if the record is no Example.
    """
    try:
        return _decode(record)
    except (_Unusual, IndexError, UnicodeDecodeError):
        return _decode_any(record)


def _decode(record: bytes) -> dict[str, Feature]:
    features: dict[str, Feature] = {}
    size = len(record)
    if not size:
        return features
    position, behind = _open(record, 0, _FIELD_1)
    if behind != size:
        raise _Unusual
    while position < size:
        position, entry_end = _open(record, position, _FIELD_1)
        position, key_end = _open(record, position, _FIELD_1)
        name = record[position:key_end].decode()
        position, behind = _open(record, key_end, _FIELD_2)
        if behind != entry_end or behind > size:
            raise _Unusual
        features[name] = _feature(record, position, behind)
        position = behind
    return features


def _feature(record: bytes, position: int, end: int) -> Feature:
    if position == end:
        return []
    kind = record[position]
    position, behind = _open(record, position, kind)
    if behind != end:
        raise _Unusual
    if kind == _FIELD_1:
        values = []
        while position < end:
            position, behind = _open(record, position, _FIELD_1)
            if behind > end:
                raise _Unusual
            values.append(record[position:behind])
            position = behind
        return values
    if position < end:
        position, behind = _open(record, position, _FIELD_1)
        if behind != end:
            raise _Unusual
    if kind == _FIELD_2:
        count, rest = divmod(end - position, 4)
        if rest:
            raise _Unusual
        return np.frombuffer(record, "<f4", count, position).astype(np.float32)
    if kind == _FIELD_3:
        return _varints(record, position, end)
    raise _Unusual


def _open(record: bytes, position: int, tag: int) -> tuple[int, int]:
    """Returns begin and end of the field with that tag at the position."""
    if record[position] != tag:
        raise _Unusual
    length = record[position + 1]
    position += 2
    if length >= 0x80:
        length &= 0x7F
        shift = 7
        while True:
            byte = record[position]
            position += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    return position, position + length


def _varints(record: bytes, position: int, end: int) -> NDArray[np.int64]:
    if end - position == 1 and record[position] < 0x80:
        return np.array((record[position],), dtype=np.int64)
    data = np.frombuffer(record, np.uint8, end - position, position)
    ends = np.flatnonzero(data < 0x80)
    if not len(data):
        return np.empty(0, np.int64)
    if not len(ends) or ends[-1] != len(data) - 1:
        raise _Unusual
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 10:
        raise _Unusual
    values = np.zeros(len(starts), np.uint64)
    for byte in range(longest):
        has = lengths > byte
        values[has] |= (data[starts[has] + byte] & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
    return values.view(np.int64)


def _decode_any(record: bytes) -> dict[str, Feature]:
    from google.protobuf.message import DecodeError

    from elasticdl.wire import example_pb2

    message = example_pb2.Example()
    try:
        message.ParseFromString(record)
    except DecodeError as error:
        raise ValueError(f"the record is not an Example: {error}") from error
    features: dict[str, Feature] = {}
    for name, feature in message.features.feature.items():
        kind = feature.WhichOneof("kind")
        if kind == "float_list":
            features[name] = np.array(feature.float_list.value, dtype=np.float32)
        elif kind == "int64_list":
            features[name] = np.array(feature.int64_list.value, dtype=np.int64)
        else:
            features[name] = list(feature.bytes_list.value)
    return features


# -- encoding ----------------------------------------------------------------------------------------------


def encode_example(features: Mapping[str, Any]) -> bytes:
    """A serialized Example.

    A feature may be an array or a list of numbers, booleans, strings or byte strings, of any shape, or one
    of these; None is a feature without values. Floats become float32, integers and booleans int64, strings
    UTF-8.
    """
    entries = [
        _field(_FIELD_1, _field(_FIELD_1, name.encode()) + _field(_FIELD_2, _encode_feature(name, value)))
        for name, value in features.items()
    ]
    return _field(_FIELD_1, b"".join(entries))


def _encode_feature(name: str, value: Any) -> bytes:
    kind = type(value)
    # Tables are made of single values, a row of dozens.
    if kind is str or kind is bytes:
        return _field(_FIELD_1, _field(_FIELD_1, value.encode() if kind is str else value))
    if kind is float:
        return _ONE_FLOAT + _FLOAT.pack(value)
    if kind is int and -1 - _INT64_MAX <= value <= _INT64_MAX:
        return _field(_FIELD_3, _field(_FIELD_1, _varint(value & 0xFFFFFFFFFFFFFFFF)))
    if value is None:
        return b""
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return _field(_FIELD_1, _field(_FIELD_1, _as_bytes(value)))
    if isinstance(value, (list, tuple)):
        if not value:
            return b""
        if isinstance(value[0], (str, bytes, bytearray, memoryview)):
            return _encode_strings(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UserError(f"Feature {name!r} of an example has no regular shape: {error}.") from error
    if array.dtype.kind == "f":
        return _field(_FIELD_2, _field(_FIELD_1, array.astype("<f4").tobytes()))
    if array.dtype.kind in "iub":
        flat = array.reshape(-1)
        if array.dtype.kind == "u" and flat.size and int(flat.max()) > _INT64_MAX:
            raise UserError(f"Feature {name!r} of an example has a number above the largest int64.")
        return _field(_FIELD_3, _field(_FIELD_1, _encode_varints(flat.astype(np.int64))))
    if array.dtype.kind in "SUO" and all(isinstance(item, (str, bytes)) for item in array.flat):
        return _encode_strings(name, array.reshape(-1).tolist())
    if array.dtype.kind == "O" and all(isinstance(item, int) for item in array.flat):
        raise UserError(f"Feature {name!r} of an example has a number that is no int64.")
    raise UserError(
        f"Feature {name!r} of an example is {type(value).__name__} of {array.dtype}, which it cannot hold.",
        hint="Numbers, booleans, strings and byte strings can be held, and lists and arrays of one of them.",
    )


def _encode_strings(name: str, values: list[Any] | tuple[Any, ...]) -> bytes:
    try:
        return _field(_FIELD_1, b"".join(_field(_FIELD_1, _as_bytes(value)) for value in values))
    except TypeError as error:
        raise UserError(f"Feature {name!r} of an example mixes strings with something else.") from error


def _as_bytes(value: str | bytes | bytearray | memoryview) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(type(value))


def _field(tag: int, data: bytes) -> bytes:
    length = len(data)
    if length < 0x80:
        return _HEADS[tag][length] + data
    return b"%c%b%b" % (tag, _varint(length), data)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _BYTES[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_varints(values: NDArray[np.int64]) -> bytes:
    if values.size and int(values.min()) >= 0 and int(values.max()) < 0x80:
        return values.astype(np.uint8).tobytes()
    return b"".join(_varint(value) for value in values.view(np.uint64).tolist())
