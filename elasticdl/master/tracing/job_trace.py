"""The trace of a job: job → epoch → shard, and resizes beside the epochs.

Follows the commands that change the job's state. A span is exported when it ends, so the open ones are a job, an epoch
for each data set, a resize, and a shard for each lease. Ids of the job and of epochs are computed from the run, and
their beginnings are kept in a file: a restarted master continues the trace. Spans that its predecessor had not sent are
missing (shards of the last seconds).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.jobs.job_folder import write_atomically
from elasticdl.master.commands.command import Command
from elasticdl.master.commands.shards import LeaseShards, ReportProgress
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.ledger.shard_types import Lease
from elasticdl.master.tracing.span import FinishedSpan, SpanSink, span_id

log = logging.getLogger("elasticdl.master")


@dataclass(kw_only=True)
class _Epoch:
    span_id: int
    number: int
    start: int
    # The end of the last shard in it.
    end: int
    shards: int = 0


@dataclass(frozen=True, kw_only=True)
class _Shard:
    lease: Lease
    epoch: _Epoch
    start: int


@dataclass(frozen=True, kw_only=True)
class _Resize:
    start: int
    before: int
    desired: int


class JobTrace:
    """`job`, `run`: their names. `file`: where beginnings are kept. `new_id`: for spans that only this master knows.
    `now`: nanoseconds since 1970.
    """

    def __init__(
        self,
        *,
        job: str,
        run: str,
        kind: str,
        file: Path,
        sink: SpanSink,
        new_id: Callable[[], int],
        now: Callable[[], int],
    ) -> None:
        self._job, self._run, self._kind = job, run, kind
        self._file = file
        self._sink = sink
        self._new_id = new_id
        self._now = now
        self._beginnings: dict[str, int] = _read(file)
        self._attempt = 1
        self._start = 0
        self._epochs: dict[str, _Epoch] = {}
        self._shards: dict[int, _Shard] = {}
        self._resize: _Resize | None = None
        self._workers = 0

    def begin(self, *, attempt: int) -> None:
        self._attempt = attempt
        self._start = self._beginning(f"attempt {attempt}")

    def observe(self, command: Command[Any], result: Any, ledger: Ledger) -> None:
        """A command has been applied; `result` is what it has returned."""
        if isinstance(command, LeaseShards):
            for lease in result:
                self._open(lease)
        elif isinstance(command, ReportProgress):
            for lease_id, *_ in command.progress:
                self._close_if_returned(lease_id, ledger, is_reported=True)
        elif not command.frequent:
            # A node has ended, say, and its leases with it.
            for lease_id in [*self._shards]:
                self._close_if_returned(lease_id, ledger)

    def observe_workers(self, joined: int, desired: int, *, step: int) -> None:
        """The workers that have joined, and those that are wanted."""
        if joined == desired and self._resize is not None:
            resize, self._resize = self._resize, None
            self._add(
                "resize",
                start=resize.start,
                end=self._now(),
                parent_id=self._id,
                attributes={
                    "elasticdl.workers.before": resize.before,
                    "elasticdl.workers.after": joined,
                    "elasticdl.step": step,
                },
            )
        elif joined != desired and (self._resize is None or self._resize.desired != desired):
            start = self._resize.start if self._resize is not None else self._now()
            before = self._resize.before if self._resize is not None else self._workers
            self._resize = _Resize(start=start, before=before, desired=desired)
        if joined == desired:
            self._workers = joined

    def end(self, state: str, message: str = "") -> None:
        """The job is over: succeeded, failed or stopped."""
        for lease_id in [*self._shards]:
            self._close(lease_id, outcome="returned")
        for dataset in [*self._epochs]:
            self._close_epoch(dataset)
        self._sink.add(
            FinishedSpan(
                name=f"job {self._job}",
                span_id=self._id,
                parent_id=None,
                start=self._start,
                end=self._now(),
                attributes={
                    "elasticdl.job": self._job,
                    "elasticdl.kind": self._kind,
                    "elasticdl.attempt": self._attempt,
                    "elasticdl.state": state,
                },
                error=(message or state) if state == "failed" else "",
            )
        )

    @property
    def _id(self) -> int:
        return span_id(self._run, f"attempt {self._attempt}")

    def _open(self, lease: Lease) -> None:
        epoch = self._epochs.get(lease.dataset)
        if epoch is None or epoch.number < lease.epoch:
            if epoch is not None:
                self._close_epoch(lease.dataset)
            name = f"attempt {self._attempt} {lease.dataset} {lease.epoch}"
            start = self._beginning(name)
            epoch = _Epoch(span_id=span_id(self._run, name), number=lease.epoch, start=start, end=start)
            self._epochs[lease.dataset] = epoch
        # A worker that asks again gets the same lease.
        self._shards.setdefault(lease.lease_id, _Shard(lease=lease, epoch=epoch, start=self._now()))

    def _close_if_returned(self, lease_id: int, ledger: Ledger, *, is_reported: bool = False) -> None:
        if lease_id in self._shards and lease_id not in ledger.leases:
            self._close(lease_id, outcome="done" if is_reported else "returned")

    def _close(self, lease_id: int, *, outcome: str) -> None:
        shard = self._shards.pop(lease_id)
        lease, epoch = shard.lease, shard.epoch
        epoch.end = self._now()
        epoch.shards += 1
        self._add(
            "shard",
            start=shard.start,
            end=epoch.end,
            parent_id=epoch.span_id,
            attributes={
                "elasticdl.dataset": lease.dataset,
                "elasticdl.epoch": lease.epoch,
                "elasticdl.shard.start": lease.start,
                "elasticdl.shard.end": lease.end,
                "elasticdl.worker": lease.worker,
                "elasticdl.outcome": outcome,
            },
        )

    def _close_epoch(self, dataset: str) -> None:
        epoch = self._epochs.pop(dataset)
        self._sink.add(
            FinishedSpan(
                name=f"{dataset} epoch {epoch.number}",
                span_id=epoch.span_id,
                parent_id=self._id,
                start=epoch.start,
                end=epoch.end,
                attributes={
                    "elasticdl.dataset": dataset,
                    "elasticdl.epoch": epoch.number,
                    "elasticdl.shards": epoch.shards,
                },
            )
        )

    def _add(
        self, name: str, *, start: int, end: int, parent_id: int, attributes: dict[str, str | int]
    ) -> None:
        self._sink.add(
            FinishedSpan(
                name=name,
                span_id=self._new_id(),
                parent_id=parent_id,
                start=start,
                end=end,
                attributes=attributes,
            )
        )

    def _beginning(self, name: str) -> int:
        """When something began, perhaps under another master."""
        if name not in self._beginnings:
            self._beginnings[name] = self._now()
            try:
                write_atomically(self._file, json.dumps(self._beginnings))
            except OSError as error:
                # A disk without room is reported by the journal.
                log.warning("%s cannot be written: %s", self._file, error.strerror)
        return self._beginnings[name]


def _read(file: Path) -> dict[str, int]:
    try:
        return {str(name): int(start) for name, start in json.loads(file.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
