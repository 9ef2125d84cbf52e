"""Commands on the job as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.master.commands.command import Command


@dataclass(frozen=True, kw_only=True)
class FinishTask(Command[None]):
    """The leader has done its task (callbacks of an epoch's end, export, merge), or failed in it."""

    task: str
    result: str
    error: str


@dataclass(frozen=True, kw_only=True)
class AddRemarks(Command[None]):
    """What workers found out about the model, for the person who started the job."""

    remarks: list[str]


@dataclass(frozen=True, kw_only=True)
class StopJob(Command[None]):
    reason: str
