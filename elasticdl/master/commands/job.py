"""Commands on the job as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.master.commands.checkpoints import SavedCheckpoint
from elasticdl.master.commands.command import Command


@dataclass(frozen=True, kw_only=True)
class FinishTask(Command[None]):
    """The leader has done its task (callbacks of an epoch's end, export, merge), or failed in it."""

    task: str
    result: str
    error: str


@dataclass(frozen=True, kw_only=True)
class AddRemarks(Command[None]):
    """Adds remarks of workers on the model, for the user who started the job."""

    remarks: list[str]


@dataclass(frozen=True, kw_only=True)
class StopJob(Command[None]):
    reason: str


@dataclass(frozen=True, kw_only=True)
class ResumeJob(Command[None]):
    """The job runs once more, after it was stopped, has failed or was interrupted. No node of before is left.
    `attempt`: 2 for the first time; the same attempt again changes nothing. `saved`: the checkpoint to continue from.
    """

    attempt: int
    saved: SavedCheckpoint | None
