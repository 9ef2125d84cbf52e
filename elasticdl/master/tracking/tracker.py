"""The interface of an experiment tracker: a run that is opened, gets points, and is closed with the job's outcome.

A tracker talks to one service through its client library, and blocks meanwhile: `recorder.py` calls it in a thread of
its own. Every call may be repeated, since an answer may be lost; so calls are idempotent.

Failure modes
    The service does not answer, or answers with an error: `TrackerError`. It says whether a repetition may help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class TrackerError(Exception):
    """A call of the service has failed."""

    def __init__(self, message: str, *, is_permanent: bool = False) -> None:
        """`is_permanent`: the service rejects what was sent, and would do so again."""
        super().__init__(message)
        self.is_permanent = is_permanent


@dataclass(frozen=True, kw_only=True)
class Run:
    """The name of a run, and its properties that are known from the start."""

    name: str
    # Unique for every job, the same for every master and attempt of it.
    key: str
    params: Mapping[str, str]
    tags: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Point:
    """Scalars of one step. A repetition has the same time, so that the service can recognize it."""

    step: int
    # Seconds since 1970.
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """The end of a job: succeeded, failed or stopped."""

    state: str
    tags: Mapping[str, str]


class Tracker(Protocol):
    # For log lines, with the address.
    name: str

    def open(self, run: Run) -> str:
        """Creates the run, or continues the one of that key. Returns where to look at it. Raises `TrackerError`."""

    def record(self, points: Sequence[Point]) -> None:
        """Raises `TrackerError`."""

    def close(self, end: RunEnd) -> None:
        """Raises `TrackerError`."""
