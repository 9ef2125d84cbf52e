"""Frozen dataclasses to JSON documents and back, with the types checked on the way in.

Status and desired state travel as JSON: over gRPC, in the job record and in files. Their readers and writers may have
different versions. Everything else works with typed objects, so that a misspelled field is found by mypy and not
by a user. This module is the only place where such a document is an untyped mapping.

A field is written under its own name, or under the key that `json_field` gives it: keys are a wire format and stay
when an attribute is renamed. Keys that a reader does not know are ignored: a newer writer may add fields without a new
version. Missing keys take the field's default.

Failure modes
    A value of the wrong type, or a missing key without a default: `BadDocument` with the path of the value, such
    as `nodes[3].shards`. A document of a version that is newer than the reader: `BadDocument` (`check_version`).
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
_KEY = "elasticdl.json_key"
_PLAIN = frozenset((str, int, float, bool, type(None)))


class BadDocument(ValueError):
    """A JSON document that cannot be read, with the path of the wrong value."""


def json_field(
    key: str, *, default: Any = dataclasses.MISSING, default_factory: Any = dataclasses.MISSING
) -> Any:
    """Returns a dataclass field that is written under `key` instead of its own name."""
    metadata = {_KEY: key}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    if default is not dataclasses.MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    return dataclasses.field(metadata=metadata)


def json_key(field: dataclasses.Field[Any]) -> str:
    """Returns the key that a field is written under."""
    return str(field.metadata.get(_KEY, field.name))


def check_version(document: Mapping[str, Any], *, newest: int, what: str) -> None:
    """Raises `BadDocument` if the document has a version after `newest`. Without a version, it is of the first."""
    version = document.get("version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BadDocument(f"{what}: version: expected a number from 1, found {version!r}")
    if version > newest:
        raise BadDocument(
            f"{what} has version {version}, and this elasticdl reads versions up to {newest}: "
            "use the version of elasticdl that wrote it, or a newer one"
        )


def encode(value: Any) -> Any:
    """Returns a dataclass of plain values, dicts, tuples, enums and dataclasses as JSON types."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return [item if type(item) in _PLAIN else encode(item) for item in value]
    if kind is dict:
        return {key: item if type(item) in _PLAIN else encode(item) for key, item in value.items()}
    if isinstance(value, enum.Enum):
        return value.value
    # Plain values are recognized here instead of in a call each: a status may hold tens of thousands of them.
    return {
        key: item if type(item := getattr(value, name)) in _PLAIN else encode(item)
        for name, key, _ in _fields(kind)
    }


def decode(of: type[T], document: object, *, path: str = "") -> T:
    """Returns the dataclass that `encode` wrote. Raises `BadDocument`."""
    if not isinstance(document, Mapping):
        raise BadDocument(f"{path or 'document'}: expected an object, found {_shortly(document)}")
    given = {}
    for name, key, hint in _fields(of):
        if key in document:
            given[name] = _value(hint, document[key], f"{path}.{key}" if path else key)
    try:
        return of(**given)
    except TypeError:
        required = [
            key
            for (name, key, _), field in zip(_fields(of), dataclasses.fields(cast(Any, of)), strict=True)
            if name not in given
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        ]
        raise BadDocument(f"{path or 'document'}: {', '.join(required)} is missing") from None


# Type hints are evaluated once per class: encoding happens several times a second.
_FIELDS: dict[Any, tuple[tuple[str, str, Any], ...]] = {}


def _fields(of: Any) -> tuple[tuple[str, str, Any], ...]:
    """Name, key and type of every field."""
    if of not in _FIELDS:
        hints = get_type_hints(of)
        _FIELDS[of] = tuple(
            (field.name, json_key(field), hints[field.name]) for field in dataclasses.fields(of)
        )
    return _FIELDS[of]


def _value(hint: Any, value: object, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (hint,) = (argument for argument in arguments if argument is not type(None))
        return _value(hint, value, path)
    if origin is tuple:
        return _items(arguments, value, path)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise BadDocument(f"{path}: expected an object, found {_shortly(value)}")
        return {str(key): _value(arguments[1], item, f"{path}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return decode(cast(type[Any], hint), value, path=path)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            words = ", ".join(str(member.value) for member in hint)
            raise BadDocument(f"{path}: {_shortly(value)} is not one of {words}") from None
    return _plain(hint, value, path)


def _items(arguments: tuple[Any, ...], value: object, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise BadDocument(f"{path}: expected a list, found {_shortly(value)}")
    if arguments[-1] is Ellipsis:
        return tuple(_value(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if len(value) != len(arguments):
        raise BadDocument(f"{path}: expected {len(arguments)} values, found {len(value)}")
    return tuple(
        _value(hint, item, f"{path}[{index}]")
        for index, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


def _plain(hint: type, value: object, path: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    expected = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[hint]
    raise BadDocument(f"{path}: expected {expected}, found {_shortly(value)}")


def _shortly(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
