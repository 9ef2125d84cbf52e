"""Commands as records of the journal: JSON objects with the name of the command and its fields.

Field types may be JSON values, frozen dataclasses, enums, and lists, tuples, dicts and optionals of these. The
annotations of a class are interpreted once.

Failure modes
    A record names a command that does not exist, or its fields are not those of the class: `UnknownCommand`. Within one
    version of the journal's format this does not happen; the journal refuses other versions before it decodes anything.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from elasticdl.master.commands.command import Command, registered_commands

# None: the value is the same in JSON.
_Convert = Callable[[Any], Any] | None


class UnknownCommand(ValueError):
    """A record that is no command of this version."""


def encode(command: Command[Any]) -> dict[str, Any]:
    """Returns the record; it shares plain values with the command."""
    kind = type(command)
    fields = vars(command)
    if nested := _codec(kind).nested:
        fields = fields | {name: _plain(fields[name]) for name in nested}
    return {"do": kind.__name__, "with": fields}


def decode(record: Mapping[str, Any]) -> Command[Any]:
    name = record.get("do", "")
    kind = registered_commands().get(name)
    if kind is None:
        raise UnknownCommand(f"The journal has a command that this version does not know: {name!r}.")
    try:
        command: Command[Any] = _decoded(kind, record["with"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownCommand(f"The journal has a command {name} with unexpected fields: {error}.") from error
    return command


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Codec:
    """The functions that write and read one class."""

    # The fields that the JSON encoder cannot write as they are.
    nested: tuple[str, ...]
    decoders: dict[str, _Convert]


_codecs: dict[type[Any], _Codec] = {}


def _codec(kind: type[Any]) -> _Codec:
    found = _codecs.get(kind)
    if found is None:
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        found = _codecs[kind] = _Codec(
            nested=tuple(name for name in names if _has_objects(hints[name])),
            decoders={name: _decoder(hints[name]) for name in names},
        )
    return found


def _has_objects(hint: Any) -> bool:
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, enum.Enum)):
        return True
    return any(map(_has_objects, typing.get_args(hint)))


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {name: _plain(inner) for name, inner in vars(value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return value


def _decoded(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    values = dict(fields)
    for name, convert in _codec(kind).decoders.items():
        if convert is not None and name in values:
            values[name] = convert(values[name])
    return kind(**values)


def _decoder(hint: Any) -> _Convert:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return functools.partial(_decoded, hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = [one for one in arguments if one is not type(None)]
        return _optional(_decoder(inner[0])) if len(inner) == 1 else None
    if origin is list:
        return _each(_decoder(arguments[0]))
    if origin is tuple:
        return _tuple([_decoder(one) for one in arguments if one is not Ellipsis])
    if origin is dict:
        return _values(_decoder(arguments[1]))
    return None


def _optional(convert: _Convert) -> _Convert:
    return convert and (lambda value: None if value is None else convert(value))


def _each(convert: _Convert) -> _Convert:
    return convert and (lambda values: [convert(value) for value in values])


def _values(convert: _Convert) -> _Convert:
    return convert and (lambda values: {key: convert(value) for key, value in values.items()})


def _tuple(converts: list[_Convert]) -> _Convert:
    """JSON knows no tuples. `converts`: one for each element, or one for all of them."""
    if len(converts) == 1 and (convert := converts[0]) is not None:
        return lambda values: tuple(convert(value) for value in values)
    return tuple
