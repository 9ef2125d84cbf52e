"""The messages that carry a whole model, written and read without copying the model more than once.

protobuf's own way copies every array into the message object, from there into the message, and the same
again at the other end; measured on a model of 100 MB that is two thirds of the time of a call. Here a
message is put together from its small fields, as protobuf writes them, and the memory of the arrays; and
it is taken apart into views of its bytes. It is the same message: protobuf reads what this writes, and
this reads what protobuf writes.

Arrays start at offsets where they can be computed with in place; `padding` in ps.proto is there for that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from elasticdl.ps.tensors import Array, portable, raw_bytes, view
from elasticdl.wire import master_pb2, ps_pb2

_Head = TypeVar("_Head", bound=Message)

# Called by its name: the messages do not pass through what protobuf generates.
SERVICE = ps_pb2.DESCRIPTOR.services_by_name["ParameterServer"].full_name
# The field of that number in every message written here.
_PADDING = 15
# `bytes` objects start at multiples of 16, and no array needs more.
_ALIGNMENT = 16
_DATA = master_pb2.Tensor.DATA_FIELD_NUMBER
# Wire types of protobuf's encoding.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode(head: Message, tensors: Mapping[int, Mapping[str, Any]]) -> bytes:
    """The message with the fields of `head`, and arrays as the tensors of the fields of those numbers."""
    parts: list[bytes | memoryview] = [head.SerializeToString()]
    length = len(parts[0])
    for field, arrays in tensors.items():
        for name, given in arrays.items():
            array = portable(given, what=name)
            prefix = _tensor_prefix(field, name, array)
            padding = _padding(length + len(prefix))
            parts += [padding, prefix, raw_bytes(array)]
            length += len(padding) + len(prefix) + array.nbytes
    return b"".join(parts)


def decode(
    kind: type[_Head], message: bytes, fields: Collection[int]
) -> tuple[_Head, dict[int, dict[str, Array]]]:
    """What `encode` put together: the message of the other fields, and the arrays of the tensor fields.

    The arrays are read-only views of the message. Raises `ValueError` if it is malformed.
    """
    whole = memoryview(message)
    rest = bytearray()
    tensors: dict[int, dict[str, Array]] = {field: {} for field in fields}
    at = 0
    while at < len(message):
        field, encoding, start, end = _field(message, at)
        if field in tensors:
            if encoding != _BYTES:
                raise ValueError("a tensor is not encoded as a message")
            name, array = _tensor(message, whole, start, end)
            if name in tensors[field]:
                raise ValueError(f"{name} comes twice")
            tensors[field][name] = array
        elif field != _PADDING:
            rest += whole[at:end]
        at = end
    return _parse(kind, rest), tensors


def _tensor_prefix(field: int, name: str, array: Array) -> bytes:
    """Everything of a tensor field up to its numbers."""
    head = master_pb2.Tensor(name=name, dtype=array.dtype.name, shape=array.shape).SerializeToString()
    head += _varint(_DATA << 3 | _BYTES) + _varint(array.nbytes)
    return _varint(field << 3 | _BYTES) + _varint(len(head) + array.nbytes) + head


def _padding(offset: int) -> bytes:
    """A field to put before what would otherwise end at this offset, so that it ends at an aligned one."""
    missing = -offset % _ALIGNMENT
    if not missing:
        return b""
    if missing == 1:
        missing += _ALIGNMENT  # a field cannot have just one byte
    return bytes([_PADDING << 3 | _BYTES, missing - 2]) + bytes(missing - 2)


def _tensor(message: bytes, whole: memoryview, start: int, end: int) -> tuple[str, Array]:
    rest = bytearray()
    data = whole[start:start]
    at = start
    while at < end:
        field, encoding, inner, after = _field(message, at)
        if after > end:
            raise ValueError("a tensor ends behind its message")
        if field == _DATA and encoding == _BYTES:
            data = whole[inner:after]
        else:
            rest += whole[at:after]
        at = after
    tensor = _parse(master_pb2.Tensor, rest)
    return tensor.name, view(data, tensor.dtype, tensor.shape, what=tensor.name or "a tensor without a name")


def _parse(kind: type[_Head], message: bytearray) -> _Head:
    try:
        return kind.FromString(bytes(message))
    except DecodeError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error


def _field(message: bytes, at: int) -> tuple[int, int, int, int]:
    """The field that starts at an offset: its number, its wire type, where its content starts and ends."""
    tag, start = _read_varint(message, at)
    kind = tag & 7
    if kind == _BYTES:
        size, start = _read_varint(message, start)
        end = start + size
    elif kind == _VARINT:
        _, end = _read_varint(message, start)
    elif kind in (_FIXED64, _FIXED32):
        end = start + (8 if kind == _FIXED64 else 4)
    else:
        raise ValueError(f"wire type {kind} is unknown")
    if end > len(message):
        raise ValueError("the message is cut off")
    return tag >> 3, kind, start, end


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    # No number has more than 64 bits, seven to a byte.
    for offset in range(at, min(at + 10, len(message))):
        byte = message[offset]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, offset + 1
        shift += 7
    raise ValueError("the message is cut off")
