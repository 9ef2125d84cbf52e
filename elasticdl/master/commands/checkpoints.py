"""Commands of the checkpoint cycle (`checkpointing/checkpoint_cycle.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticdl.master.commands.command import Command
from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that can be restored. Without a ledger the data starts from the first epoch."""

    path: str
    step: int
    ledger: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class StartFromCheckpoint(Command[None]):
    """The job begins with the model of this checkpoint."""

    checkpoint: SavedCheckpoint


@dataclass(frozen=True, kw_only=True)
class RequestCheckpoint(Command[None]):
    """The job is about to be suspended: what has been trained is to be in a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class ReachBarrier(Command[None]):
    """A worker has finished its batch and waits. `files`: what it wrote, where workers own the model."""

    worker: str
    barrier: int
    files: list[SavedFile] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PassBarrier(Command[None]):
    """The snapshot of the model has been taken: training goes on."""

    barrier: int


@dataclass(frozen=True, kw_only=True)
class FailCheckpoint(Command[None]):
    """A worker could not write its part of the model."""

    barrier: int
    message: str


@dataclass(frozen=True, kw_only=True)
class FinishCheckpoint(Command[None]):
    """The checkpoint has been written to `path`, or could not be."""

    barrier: int
    path: str
    error: str = ""
