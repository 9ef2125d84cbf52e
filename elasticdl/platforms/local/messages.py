"""The messages on the sockets of the local platform: one JSON object a line, each of a known kind.

The host, the master and the keeper (see `keeper`) speak the same few messages. Requests carry a number that
the answer repeats, so that several may be under way on one connection; a `Watch` is answered by `Changed` for
as long as the connection lives, first of all once for every node there is. Whatever is not exactly one of
these messages is refused: a missing key, a key too many, a value of another type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus

# A name becomes the name of a log file, so it must not be able to leave the folder or hide in it.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

# Longer than any command with its environment that an operating system would take.
LONGEST_LINE = 8 * 1024 * 1024


class BadMessage(ValueError):
    """A line that is not one of the messages."""


@dataclass(frozen=True, kw_only=True)
class Start:
    id: int
    node: NodeRequest
    again: bool = False  # start it even if it has run and ended before


@dataclass(frozen=True, kw_only=True)
class Stop:
    id: int
    name: str
    grace_seconds: float


@dataclass(frozen=True, kw_only=True)
class ListNodes:
    id: int


@dataclass(frozen=True, kw_only=True)
class Watch:
    id: int


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Nodes that ended under an earlier keeper, so that the list stays whole and their names stay taken."""

    id: int
    nodes: tuple[NodeStatus, ...]


@dataclass(frozen=True, kw_only=True)
class Done:
    id: int


@dataclass(frozen=True, kw_only=True)
class Refused:
    id: int
    message: str


@dataclass(frozen=True, kw_only=True)
class Nodes:
    id: int
    nodes: tuple[NodeStatus, ...]


@dataclass(frozen=True, kw_only=True)
class Changed:
    id: int
    node: NodeStatus
    pid: int | None


Request = Start | Stop | ListNodes | Watch | Recall
Answer = Done | Refused | Nodes | Changed

_Checked = TypeVar("_Checked")


class _Fields:
    """A JSON object whose values are taken out one by one, each checked; anything left over is an error."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise BadMessage(f"expected an object, got {type(value).__name__}")
        self._rest: dict[str, Any] = dict(value)

    def take(self, key: str, check: Callable[[object], _Checked]) -> _Checked:
        try:
            value = self._rest.pop(key)
        except KeyError:
            raise BadMessage(f"{key!r} is missing") from None
        try:
            return check(value)
        except ValueError as error:
            raise BadMessage(f"{key!r}: {error}") from None

    def end(self) -> None:
        if self._rest:
            raise BadMessage(f"unknown keys: {', '.join(sorted(self._rest))}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadMessage(f"expected a text, got {value!r}")
    return value


def _node_name(value: object) -> str:
    name = _text(value)
    if not NODE_NAME.fullmatch(name):
        raise BadMessage(f"{name!r} is no name for a node: letters, digits, '.', '_' and '-' only")
    return name


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadMessage(f"expected true or false, got {value!r}")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadMessage(f"expected a whole number, got {value!r}")
    return value


def _whole_or_none(value: object) -> int | None:
    return None if value is None else _whole(value)


def _seconds(value: object) -> float:
    # `not (>= 0)` also catches a NaN.
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= 0:
        raise BadMessage(f"expected seconds, got {value!r}")
    return float(value)


def _command(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise BadMessage("expected a list of at least one word")
    return tuple(_text(word) for word in value)


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadMessage(f"expected an object, got {value!r}")
    return {_text(key): _text(item) for key, item in value.items()}


def _request(value: object) -> NodeRequest:
    fields = _Fields(value)
    request = NodeRequest(
        name=fields.take("name", _node_name),
        role=fields.take("role", _text),
        command=fields.take("command", _command),
        environment=fields.take("environment", _environment),
        place=fields.take("place", _whole),
        places=fields.take("places", _whole),
        memory_doublings=fields.take("memory_doublings", _whole),
    )
    fields.end()
    return request


def _status(value: object) -> NodeStatus:
    fields = _Fields(value)
    status = NodeStatus(
        name=fields.take("name", _node_name),
        role=fields.take("role", _text),
        phase=fields.take("phase", NodePhase),
        reason=fields.take("reason", EndReason),
        exit_code=fields.take("exit_code", _whole_or_none),
        message=fields.take("message", _text),
        gets_more_memory=fields.take("gets_more_memory", _flag),
        place=fields.take("place", _whole_or_none),
    )
    fields.end()
    return status


def _statuses(value: object) -> tuple[NodeStatus, ...]:
    if not isinstance(value, list):
        raise BadMessage(f"expected a list, got {value!r}")
    return tuple(_status(item) for item in value)


_KINDS: dict[str, tuple[type[Any], dict[str, Callable[[object], Any]]]] = {
    "start": (Start, {"node": _request, "again": _flag}),
    "stop": (Stop, {"name": _node_name, "grace_seconds": _seconds}),
    "list": (ListNodes, {}),
    "watch": (Watch, {}),
    "recall": (Recall, {"nodes": _statuses}),
    "done": (Done, {}),
    "refused": (Refused, {"message": _text}),
    "nodes": (Nodes, {"nodes": _statuses}),
    "changed": (Changed, {"node": _status, "pid": _whole_or_none}),
}
_KIND_OF = {message: kind for kind, (message, _) in _KINDS.items()}


def encode(message: Request | Answer) -> bytes:
    return json.dumps({"kind": _KIND_OF[type(message)], **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Request | Answer:
    """Raises `BadMessage` for anything that `encode` would not have written."""
    try:
        value = json.loads(line)
    except ValueError as error:  # JSON errors and text that is not UTF-8
        raise BadMessage(f"not a line of JSON: {error}") from None
    except RecursionError:
        raise BadMessage("not a line of JSON: nested too deeply") from None
    fields = _Fields(value)
    kind = fields.take("kind", _text)
    if kind not in _KINDS:
        raise BadMessage(f"unknown kind {kind!r}")
    message, checks = _KINDS[kind]
    taken = {"id": fields.take("id", _whole)}
    taken.update((key, fields.take(key, check)) for key, check in checks.items())
    fields.end()
    decoded: Request | Answer = message(**taken)
    return decoded
