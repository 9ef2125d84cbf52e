"""The effects of the checkpoint cycle: parameter servers take and write snapshots, files become a checkpoint.

When a barrier is due, and which workers have to reach it, the state machine knows (`training_schedule.py`,
`checkpoint_cycle.py`). Here the parameter servers are called, and files are published together with the ledger of the
same moment.

Failure modes
    A server does not answer: its death arrives by the platform, and then there is no barrier to pass, or no checkpoint
    to finish, any more; until then the call is retried. So it is if a server was restored and has no optimizer yet: a
    worker at the barrier sends it. The disk is full, or a folder cannot be written: the checkpoint fails, and the job
    with it; the checkpoint before it stays. Files that would not hold all of the model are not written: that is a
    failure, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from elasticdl.errors import UserError
from elasticdl.jobs.flags.grammar import is_url
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.checkpointing.checkpoint_cycle import CheckpointCycle, PendingCheckpoint
from elasticdl.master.checkpointing.remote_copy import RemoteCopy
from elasticdl.master.commands.checkpoints import (
    FinishCheckpoint,
    PassBarrier,
    SavedCheckpoint,
    StartFromCheckpoint,
)
from elasticdl.master.commands.executor import CommandExecutor
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.lifecycle.evaluation import Evaluation
from elasticdl.master.settings import JobSettings
from elasticdl.ps.checkpoint import checkpoint_folders as checkpoints
from elasticdl.ps.checkpoint import partial_folders
from elasticdl.ps.checkpoint.increments import Increments, PublishedCheckpoint
from elasticdl.ps.client.coordinator import Coordinator, describe_error
from elasticdl.ps.core.buckets import BUCKETS, BucketMap

log = logging.getLogger("elasticdl.master")

# Between attempts, so that servers have time to come back.
_RETRY_SECONDS = 1.0
# A server cannot write its file, now or later: the disk does not take it, or the snapshot does not exist.
_FINAL = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)


class Placement(Protocol):
    """The servers of the model's buckets."""

    @property
    def map(self) -> BucketMap | None: ...

    @property
    def handing_over(self) -> bool: ...

    def addresses(self) -> dict[int, str]: ...


class CheckpointedState(Protocol):
    @property
    def cycle(self) -> CheckpointCycle: ...

    @property
    def evaluation(self) -> Evaluation | None: ...

    @property
    def placing(self) -> Placement: ...

    @property
    def generation(self) -> int: ...

    @property
    def outcome(self) -> str: ...


class StallTimers(Protocol):
    """The failure detector, as far as barriers concern it."""

    def restart_stall_timers(self) -> None: ...


class CheckpointedJob(CommandExecutor, Protocol):
    """The part of the master that the checkpointer uses."""

    @property
    def spec(self) -> JobSpec: ...

    @property
    def plan(self) -> JobSettings: ...

    @property
    def state(self) -> CheckpointedState: ...

    @property
    def folder(self) -> Path: ...

    @property
    def run_id(self) -> str: ...

    @property
    def detector(self) -> StallTimers: ...


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """An attempt to write a checkpoint; a change of its fields meanwhile makes it void."""

    pending: PendingCheckpoint
    generation: int
    # The folder of all checkpoints, and the one that is being filled.
    directory: Path
    partial: Path
    # The servers that write; none if a worker has written the model.
    addresses: dict[int, str]
    # The checkpoint that an incremental one builds on.
    base: PublishedCheckpoint | None


@dataclass(frozen=True, kw_only=True)
class _Files:
    entries: Sequence[checkpoints.SavedFile]
    # All of the model, without a base.
    complete: bool


class _Void(Exception):
    """The model was lost meanwhile, and the snapshot with it."""


class Checkpointer:
    def __init__(self, job: CheckpointedJob, servers: Coordinator) -> None:
        self._job = job
        self._servers = servers
        # The barrier whose snapshot is being taken, and the one whose checkpoint is being written.
        self._passing = 0
        self._saving = 0
        # Not on checkpoints of a master before this one: servers may not have their snapshots any more.
        self._increments = Increments(job.spec.checkpoint.checkpoint_increments)
        self._remote = RemoteCopy(job.spec.checkpoint.checkpoint_dir, self.folder())

    # -- where, and from where -------------------------------------------------------------------------------

    def folder(self) -> Path:
        """Returns the folder of checkpoints."""
        given = self._job.spec.checkpoint.checkpoint_dir
        # Checkpoints for a URL are written here first.
        return Path(given).resolve() if given and not is_url(given) else self._job.folder / "checkpoints"

    def save_folder(self) -> Path:
        """Returns the folder for the files of the checkpoint of the present barrier."""
        # Not by the step: reports that are under way when a worker receives the barrier still add some.
        barrier = self._job.state.cycle.barrier
        number = barrier.number if barrier is not None else 0
        return partial_folders.partial_folder(self.folder(), number, run=self._job.run_id)

    def begin(self) -> None:
        """Starts from the checkpoint that the job names, if it names one."""
        place = self._job.spec.checkpoint.checkpoint_dir_for_init
        if not place:
            return
        checkpoint = checkpoints.find_checkpoint(place)
        # Reports missing files now and not when servers restore them.
        checkpoints.chain(checkpoint)
        ledger = self._ledger_to_continue(checkpoint)
        step = checkpoint.manifest.step if ledger is not None else 0
        self._job.do(
            StartFromCheckpoint(
                checkpoint=SavedCheckpoint(path=str(checkpoint.path.resolve()), step=step, ledger=ledger)
            )
        )
        if self._job.plan.kind == "train":
            how = (
                f"continuing at step {step}" if ledger is not None else "with its values and the first epoch"
            )
            log.info("Starting from the checkpoint %s, %s.", checkpoint.path, how)

    def _ledger_to_continue(self, checkpoint: checkpoints.Checkpoint) -> dict[str, Any] | None:
        """The ledger of a checkpoint, if it is about the same data and has something left to do."""
        plan = self._job.plan
        if plan.kind != "train" or checkpoint.manifest.attributes.get("data") != self._data_identity():
            return None
        if int(checkpoint.manifest.attributes.get("epochs_done", 0)) >= plan.epochs:
            return None
        return checkpoint.ledger()

    def _data_identity(self) -> dict[str, Any]:
        plan, data = self._job.plan, self._job.spec.data.training_data
        return {
            "training_data": data if is_url(data) else str(Path(data).resolve()),
            "shard_size": plan.shard_size,
            "shuffle": plan.shuffle,
            "shuffle_seed": plan.seed,
            # Gone through in order by all together: there are no shards in between to be requeued.
            **({"order": "steps"} if plan.allreduce else {}),
        }

    # -- the barrier -----------------------------------------------------------------------------------------

    def barrier_to_pass(self) -> int:
        """The barrier that is complete, and for which no snapshot is being taken: the caller has to. 0: none."""
        cycle = self._job.state.cycle
        if cycle.barrier is None or self._passing == cycle.barrier.number or not cycle.is_complete:
            return 0
        self._passing = cycle.barrier.number
        return self._passing

    async def pass_barrier(self, number: int) -> None:
        """Takes the snapshot. If that cannot be done yet, the caller is woken to retry."""
        done = False
        try:
            done = await self._take_snapshot(number)
        finally:
            # If it is void already, another may be under way by now, which is not to be begun twice.
            if self._passing == number:
                self._passing = 0
        if not done:
            await asyncio.sleep(_RETRY_SECONDS)
            self._job.wake()

    async def _take_snapshot(self, number: int) -> bool:
        """Returns False if it has to be retried."""
        state = self._job.state
        placing = state.placing
        addresses = placing.addresses()
        if self._job.plan.servers and (not addresses or placing.handing_over):
            return False
        barrier = state.cycle.barrier
        if addresses:
            try:
                # A checkpoint must hold every gradient that the ledger counts, those too that wait for others.
                await self._servers.freeze_all(
                    addresses,
                    checkpoints.snapshot_name(number),
                    state.generation,
                    map_version=placing.map.version if placing.map is not None else 0,
                    flush=barrier is not None and (barrier.save or barrier.flush),
                )
            except (grpc.RpcError, asyncio.TimeoutError) as error:
                # The platform reports a server that died, and then there is no barrier to pass any more.
                log.warning("Retrying the snapshot of barrier %d: %s", number, describe_error(error))
                return False
        self._job.do(PassBarrier(barrier=number))
        # Workers that made no progress waited here.
        self._job.detector.restart_stall_timers()
        if state.cycle.pending is None and state.evaluation is None and addresses:
            await self._servers.release_all(addresses, checkpoints.snapshot_name(number))
        return True

    # -- the checkpoint --------------------------------------------------------------------------------------

    def is_to_save(self) -> bool:
        """There is a checkpoint to write, and it is not being written: the caller has to."""
        pending = self._job.state.cycle.pending
        if pending is None or self._saving == pending.barrier:
            return False
        self._saving = pending.barrier
        return True

    async def save(self) -> None:
        """Writes the pending checkpoint: sweeps, writes the files, publishes them, reports, prunes."""
        pending = self._job.state.cycle.pending
        if pending is None:
            return
        directory = self.folder()
        # First: what is left of others may be what fills the disk.
        await self._sweep(directory, pending.barrier)
        if self._job.state.cycle.pending is not pending or self._job.state.outcome:
            # The model was lost meanwhile, and with it the snapshot; or the job is over, and its servers go.
            return
        attempt = self._attempt(pending, directory)
        error = path = ""
        try:
            path = str(await self._write(attempt))
            await asyncio.to_thread(self._remote.upload)
        except _Void:
            log.warning("Giving up the checkpoint of step %d: the model was lost meanwhile", pending.step)
            shutil.rmtree(attempt.partial, ignore_errors=True)
            return
        except UserError as problem:
            error = str(problem)
        except OSError as problem:
            error = f"{directory}: {problem.strerror or problem}"
        except grpc.RpcError as problem:
            if problem.code() not in _FINAL:
                await self._retry_later(pending, problem)
                return
            error = problem.details() or "a parameter server could not write its file"
        self._job.do(FinishCheckpoint(barrier=pending.barrier, path=path, error=error))
        if error:
            # Half of it is useless, and may be what fills the disk.
            shutil.rmtree(attempt.partial, ignore_errors=True)
        else:
            await self._prune(directory, Path(path))
        if self._job.state.evaluation is None:
            await self._release(attempt.addresses, pending.barrier)

    def _attempt(self, pending: PendingCheckpoint, directory: Path) -> _Attempt:
        generation = self._job.state.generation
        return _Attempt(
            pending=pending,
            generation=generation,
            directory=directory,
            partial=partial_folders.partial_folder(directory, pending.barrier, run=self._job.run_id),
            addresses=self._job.state.placing.addresses(),
            base=self._base(directory, generation) if self._served else None,
        )

    @property
    def _served(self) -> bool:
        """Parameter servers write the model. Not by those that are there: where there are none, files are missing."""
        return bool(self._job.plan.servers)

    async def _write(self, attempt: _Attempt) -> Path:
        """Returns the published folder. Raises `_Void` if the attempt has become void on the way."""
        files = await self._write_files(attempt)
        manifest = self._manifest(attempt, files)
        pending = attempt.pending
        after = await asyncio.to_thread(self._remote.highest_serial)
        await asyncio.to_thread(
            checkpoints.write_manifest, attempt.partial, manifest, pending.ledger, after=after
        )
        state = self._job.state
        if state.cycle.pending is not pending or state.generation != attempt.generation:
            raise _Void
        return self._publish(attempt, files)

    async def _write_files(self, attempt: _Attempt) -> _Files:
        if self._served:
            # An attempt with other servers may have left files that do not belong to this one.
            shutil.rmtree(attempt.partial, ignore_errors=True)
        attempt.partial.mkdir(parents=True, exist_ok=True)
        if not self._served:
            return _Files(entries=attempt.pending.files, complete=True)
        entries, complete = await self._save_servers(
            attempt.addresses, attempt.pending.barrier, attempt.partial, attempt.base
        )
        return _Files(entries=entries, complete=complete or attempt.base is None)

    def _manifest(self, attempt: _Attempt, files: _Files) -> checkpoints.Manifest:
        base = None if files.complete else attempt.base
        return checkpoints.Manifest(
            step=attempt.pending.step,
            files=tuple(files.entries),
            base=base.folder if base is not None else "",
            base_crc32=base.manifest_crc32 if base is not None else 0,
            attributes={
                "job": self._job.spec.job_name,
                "model_def": self._job.spec.model.model_def,
                "owner": "worker" if self._job.plan.worker_owns_state else "ps",
                "epochs_done": _epochs_done(attempt.pending.ledger),
                "data": self._data_identity(),
                "run": self._job.run_id,
            },
        )

    def _publish(self, attempt: _Attempt, files: _Files) -> Path:
        step = attempt.pending.step
        published = checkpoints.publish(attempt.partial, attempt.directory, step)
        self._increments.add(
            PublishedCheckpoint(
                folder=published.name,
                manifest_crc32=checkpoints.file_crc32(published / checkpoints.MANIFEST),
                copy=checkpoints.snapshot_name(attempt.pending.barrier),
                generation=attempt.generation,
            ),
            size=sum(entry.bytes for entry in files.entries),
            complete=files.complete,
        )
        base = None if files.complete else attempt.base
        since = f", with what has changed since {base.folder}" if base is not None else ""
        log.info("Checkpoint of step %d written to %s%s.", step, published, since)
        return published

    async def _retry_later(self, pending: PendingCheckpoint, problem: grpc.RpcError) -> None:
        """A server is gone; its end arrives by the platform and makes this checkpoint void, or it comes back."""
        log.warning("Retrying the checkpoint of step %d: %s", pending.step, problem.details())
        # If it is void already, another may be under way by now, which is not to be begun twice.
        if self._job.state.cycle.pending is pending:
            self._saving = 0
        await asyncio.sleep(_RETRY_SECONDS)
        self._job.wake()

    async def _prune(self, directory: Path, newest: Path) -> None:
        """Removes older checkpoints. Only after the newest is known to the job, which would roll back to them."""
        section = self._job.spec.checkpoint
        keep = section.keep_checkpoint_max if section.checkpoint_dir else 1
        try:
            await asyncio.to_thread(checkpoints.prune, directory, keep, own=newest)
            await asyncio.to_thread(self._remote.prune)
        except (OSError, UserError) as problem:
            log.warning("%s: older checkpoints could not be removed: %s", directory, problem)

    async def _sweep(self, directory: Path, barrier: int) -> None:
        """Removes what was left of checkpoints that were not finished."""
        try:
            swept = await asyncio.to_thread(
                partial_folders.sweep, directory, run=self._job.run_id, barrier=barrier, now=time.time()
            )
        except OSError as problem:
            log.warning("%s: what was left of checkpoints could not be removed: %s", directory, problem)
        else:
            for path in swept:
                log.info("Removed %s: an unfinished checkpoint", path)

    def _base(self, directory: Path, generation: int) -> PublishedCheckpoint | None:
        """The checkpoint that the next one may build on; None also if it has been removed."""
        base = self._increments.base(generation)
        if base is None or checkpoints.find_base(directory, base.folder, base.manifest_crc32) is None:
            return None
        return base

    async def _save_servers(
        self, addresses: dict[int, str], barrier: int, folder: Path, base: PublishedCheckpoint | None
    ) -> tuple[list[checkpoints.SavedFile], bool]:
        """Each writes what it is the primary of. The second: whether that is all, without a base."""
        placed = self._job.state.placing.map
        assert placed is not None
        primaries = {server: placed.primaries_of(server) for server in addresses}
        _check_coverage(primaries)
        writers = {server: address for server, address in addresses.items() if primaries[server]}
        since = base.copy if base is not None else ""
        return await self._servers.save_all(
            writers, checkpoints.snapshot_name(barrier), folder, buckets=primaries, since=since
        )

    async def release(self, number: int) -> None:
        """Lets servers drop the snapshot after an evaluation, unless it is still being written."""
        pending = self._job.state.cycle.pending
        if pending is None or pending.barrier != number:
            await self._release(self._job.state.placing.addresses(), number)

    async def _release(self, addresses: dict[int, str], number: int) -> None:
        """Releases a snapshot. The snapshot collector releases it later where that fails."""
        if addresses:
            with contextlib.suppress(grpc.RpcError, asyncio.TimeoutError):
                await self._servers.release_all(addresses, checkpoints.snapshot_name(number))


def _check_coverage(buckets: Mapping[int, Sequence[int]]) -> None:
    """Raises `UserError` unless the servers' files have every bucket exactly once."""
    times = Counter(itertools.chain.from_iterable(buckets.values()))
    missing = sum(1 for bucket in range(BUCKETS) if not times[bucket])
    twice = sum(1 for count in times.values() if count > 1)
    if missing or twice:
        raise UserError(
            f"of the {BUCKETS} buckets of the model, {missing} would be in no file and {twice} in more than one: "
            "what the master knows of its parameter servers is wrong."
        )


def _epochs_done(ledger: dict[str, Any]) -> int:
    """Whole epochs of training: one that was ended on purpose before its end is none."""
    training = ledger["datasets"][TRAINING]
    return int(training["epoch"]) + (1 if training["done"] == training["spec"]["size"] else 0)
