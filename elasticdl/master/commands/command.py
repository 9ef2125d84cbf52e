"""The base class of journal commands, and the registry of their names.

A command is a frozen dataclass that names the type of its result: `class JoinNode(Command[bool])`. The name of the
class is its name in the journal, so renaming a class or a field changes the journal's format: raise `FORM` in
`job_state.py` with it.

A command is applied when it is sent and again when the journal is replayed, and both must give the same result. So its
handler depends on the fields and on the state only: no clock, no randomness, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

R = TypeVar("R", covariant=True)
C = TypeVar("C", bound="Command[Any]")

_registry: dict[str, type[Command[Any]]] = {}


class Command(Generic[R]):
    """A change of the job's state; `R` is what its handler returns."""

    # Sent for every shard. Waiting calls are woken only if it changes what they wait for.
    frequent: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if cls.__name__ in _registry:
            raise TypeError(f"Two journal commands are named {cls.__name__}.")
        _registry[cls.__name__] = cls

    @classmethod
    def handled_by(cls: type[C], handler: Callable[[C], R]) -> Handler:
        """Pairs the command with its handler. The type checker compares arguments and result of both."""
        return cls, handler


Handler = tuple[type[Command[Any]], Callable[[Any], Any]]


def registered_commands() -> Mapping[str, type[Command[Any]]]:
    """All commands, by their names in the journal."""
    return _registry
