"""The command log as components use it: they send commands and wait for changes of the state."""

from __future__ import annotations

from typing import Protocol, TypeVar

from elasticdl.master.commands.command import Command
from elasticdl.master.wakeup import Signal

R = TypeVar("R")


class CommandExecutor(Protocol):
    """Applies commands to the state of the job (`command_log.py`)."""

    @property
    def changed(self) -> Signal:
        """Fires after every change of the state but those of single shards."""

    def do(self, command: Command[R]) -> R:
        """Applies the command and writes it to the journal; returns what the handler returns."""

    def wake(self) -> None:
        """Makes everything that waits look at the state again."""
