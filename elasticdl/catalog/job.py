"""One job as the `elasticdl jobs` commands see it, wherever it runs: on this machine or on a cluster."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# In place of a kind or a state that cannot be read; the message says why.
UNKNOWN = "?"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A line of `elasticdl jobs list`. Times are seconds since 1970, 0 if not known."""

    job: str
    kind: str
    state: str
    created: float
    ended: float | None
    message: str
    # "here", or the namespace on the cluster.
    place: str


@dataclass(frozen=True, kw_only=True)
class LogLine:
    node: str
    text: str


class JobView(abc.ABC):
    name: str

    @property
    @abc.abstractmethod
    def logs_place(self) -> str:
        """Where a person finds the logs: a folder, or a command that prints them."""

    @property
    @abc.abstractmethod
    def without_logs(self) -> str:
        """Why there may be none at all."""

    @property
    @abc.abstractmethod
    def without_master(self) -> str:
        """What can be done about a job that is interrupted."""

    @abc.abstractmethod
    def summary(self) -> Summary: ...

    @abc.abstractmethod
    def status(self) -> dict[str, Any]:
        """The newest there is to know."""

    @abc.abstractmethod
    def is_running(self) -> bool: ...

    @abc.abstractmethod
    def log_names(self) -> list[str]:
        """The nodes that there are logs of."""

    @abc.abstractmethod
    def log_lines(self, node: str, *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        """Of one node, or of all if none is named; with `follow` until the job ends."""

    @abc.abstractmethod
    def scale(self, *, num_workers: int | None, num_ps: int | None) -> str:
        """Returns what the job does about it."""

    @abc.abstractmethod
    def stop(self, reason: str) -> None:
        """Returns when the job has ended."""

    @abc.abstractmethod
    def delete(self) -> None:
        """Removes the record. Refuses while the job runs."""
