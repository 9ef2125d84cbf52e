"""Keeps the job record of a cluster in step with the master: writes the status, applies the desired state.

The status is written when something has changed, at most every two seconds, so that a job is no load on the cluster
however fast it trains; and every two minutes if nothing has, which tells an idle master from one that is cut off. The
record is watched, so that nothing is polled.

Failure modes
    The API server refuses a write: the job goes on, the log says so, and the write is retried two seconds later. The
    final status is retried for a while, then reduced to the outcome, for an object without room. If that fails too, the
    job has ended as it has ended: what cannot be written never becomes its outcome. Another master has the record: this
    one ends, and writes nothing more (`record_writer.py`). A desired state that cannot be read or applied: reported in
    the status, and nothing is done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from elasticdl.errors import UserError
from elasticdl.jobs.desired import Desired, DesiredError
from elasticdl.jobs.job_record import (
    DESIRED_KEY,
    JobRecord,
    snapshot_entry,
    status_entry,
)
from elasticdl.jobs.status import DesiredResult, JobStatus, RunState
from elasticdl.master.commands.checkpoints import RequestCheckpoint
from elasticdl.master.commands.job import StopJob
from elasticdl.master.kubernetes.record_writer import RecordWriter
from elasticdl.master.kubernetes.status_compaction import compacted, outcome_only
from elasticdl.master.master import Master
from elasticdl.master.services.scale_limits import CannotScale, scale
from elasticdl.master.status import job_status
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError
from elasticdl.platforms.kubernetes.manifests import SIGN_OF_LIFE_SECONDS
from elasticdl.platforms.kubernetes.watch import Change, watch

log = logging.getLogger("elasticdl.master")

_STATUS_SECONDS = 2.0
# Status writes per write of the snapshot.
_WRITES_PER_SNAPSHOT = 2
# A refusal that passes (a right taken away and given back, a webhook that is down) does so within minutes.
_FINAL_STATUS_SECONDS = 120.0
_RETRY_SECONDS = 5.0
# Errors of the object itself, such as its size, are permanent.
_TOO_LARGE = (413, 422)


class RecordSync:
    """`writer`: has claimed the record."""

    def __init__(self, cluster: Cluster, master: Master, writer: RecordWriter) -> None:
        self._cluster = cluster
        self._master = master
        self._writer = writer
        self._name = naming.record_name(master.spec.job_name)
        self._written_status: JobStatus | None = None
        self._written_snapshot: str | None = None
        self._written_at = float("-inf")
        # The text of the desired state that was last acted on, the state, and what became of it.
        self._desired_text = ""
        self._observed = Desired()
        self._result = DesiredResult()

    async def run(self) -> None:
        """Runs until the record is deleted. Raises `Replaced` if it is another master's."""
        watching = asyncio.create_task(self._watch())
        writing = asyncio.create_task(self._write_periodically())
        try:
            await asyncio.wait({watching, writing}, return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, writing):
                if task.done():
                    task.result()
        finally:
            watching.cancel()
            writing.cancel()
            await asyncio.gather(watching, writing, return_exceptions=True)

    async def write(self, *, snapshot: bool = True) -> None:
        """Writes what has changed of the status and, if asked for, of the snapshot; now and then the status anyway."""
        status = compacted(self._status())
        # That time has passed is no change.
        compared = replace(status, now=0.0)
        packed = self._master.record() if snapshot else None
        moment = asyncio.get_running_loop().time()
        changes: dict[str, str | None] = {}
        if compared != self._written_status:
            changes |= status_entry(status)
        if packed is not None and packed != self._written_snapshot:
            changes |= snapshot_entry(packed)
        if not changes and moment - self._written_at >= SIGN_OF_LIFE_SECONDS:
            changes |= status_entry(status)
        if changes:
            await self._writer.write(changes)
            self._written_at = moment
            self._written_status = compared
            self._written_snapshot = packed if packed is not None else self._written_snapshot

    async def write_final(self, *, seconds: float = _FINAL_STATUS_SECONDS) -> bool:
        """Writes the last status and snapshot, with retries. Returns false if they could not be written."""
        if await _retry(self.write, seconds=seconds):
            return True
        return await _retry(self._write_outcome, seconds=0.0)

    async def _write_outcome(self) -> None:
        # A snapshot that is there is older than this status: a job that is over does not need it.
        snapshot = snapshot_entry(None) if self._master.state.outcome else {}
        await self._writer.write({**status_entry(outcome_only(self._status())), **snapshot})

    def _status(self) -> JobStatus:
        return job_status(self._master, observed=self._observed, desired_result=self._result)

    async def _write_periodically(self) -> None:
        count = 0
        while True:
            await self._write_or_log(snapshot=count % _WRITES_PER_SNAPSHOT == 0)
            count += 1
            await asyncio.sleep(_STATUS_SECONDS)

    async def _write_or_log(self, *, snapshot: bool) -> None:
        try:
            await self.write(snapshot=snapshot)
        except ClusterError as error:
            # Too large for an object of the cluster, say. The journal has it all.
            _log_refusal(error)

    async def _watch(self) -> None:
        async for change in watch(self._cluster, "ConfigMap", fields={"metadata.name": self._name}):
            if not isinstance(change, Change):
                continue
            if change.gone:
                return
            self._writer.see(change.document)
            record = JobRecord.of(change.document.get("data"))
            if self._observe(record):
                await self._write_or_log(snapshot=False)

    def _observe(self, record: JobRecord) -> bool:
        """Acts on the desired state if it has changed. Returns whether there is a result to report."""
        text = record.data.get(DESIRED_KEY, "")
        if text == self._desired_text:
            return False
        self._desired_text = text
        try:
            desired = record.desired()
        except DesiredError as error:
            log.warning("Ignoring the desired state of the job: %s", error)
            self._result = DesiredResult(error=str(error))
            return True
        if desired == self._observed:
            return False
        self._observed, self._result = desired, self._reconcile(desired)
        return True

    def _reconcile(self, desired: Desired) -> DesiredResult:
        try:
            result = self._apply(desired)
        except CannotScale as error:
            log.warning("Cannot scale (generation %d): %s", desired.generation, error)
            return DesiredResult(error=str(error))
        if result.message:
            log.info("Scaling (generation %d): %s", desired.generation, result.message)
        for name, reason in result.ignored_victims.items():
            log.warning("Not draining %s: %s", name, reason)
        return result

    def _apply(self, desired: Desired) -> DesiredResult:
        state = self._master.state
        if desired.stop:
            if not state.stopping and not state.outcome:
                self._master.do(StopJob(reason=desired.stop))
            return DesiredResult(message=f"stopping: {desired.stop}")
        if desired.pause:
            self._master.do(RequestCheckpoint())
            return DesiredResult(message=f"pausing: {desired.pause}")
        # Counts that are met already need no check: a master that restarts sees the same desired state again.
        nodes = {
            role: count for role, count in desired.nodes.items() if state.roster.targets.get(role) != count
        }
        return scale(self._master, nodes, victims=desired.victims)


async def report_failure(
    writer: RecordWriter, message: str, *, seconds: float = _FINAL_STATUS_SECONDS
) -> bool:
    """Writes that the job failed before its master could start. Returns false if that could not be written."""
    status = JobStatus(job=writer.job, state=RunState.FAILED, message=message, now=time.time())
    return await _retry(partial(writer.write, status_entry(status)), seconds=seconds)


async def report_waiting(writer: RecordWriter, reason: str) -> None:
    """Writes what a master waits for that cannot start yet. The rest of the last status stays."""
    record = await writer.read()
    try:
        before = JobRecord.of((record or {}).get("data")).status()
    except UserError as error:
        log.warning("Replacing the status in the job record: %s", error)
        before = JobStatus()
    status = replace(before, job=writer.job, now=time.time(), phase="waiting for the journal", message=reason)
    await _retry(partial(writer.write, status_entry(status)), seconds=0.0)


async def _retry(write: Callable[[], Awaitable[None]], *, seconds: float) -> bool:
    """Retries for so long, unless the error is permanent. Returns true if it was written."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            await write()
            return True
        except ClusterError as error:
            _log_refusal(error)
            late = asyncio.get_running_loop().time() + _RETRY_SECONDS > deadline
            if late or error.status in _TOO_LARGE:
                return False
        await asyncio.sleep(_RETRY_SECONDS)


def _log_refusal(error: ClusterError) -> None:
    log.warning("The job's record could not be written: %s", error)
