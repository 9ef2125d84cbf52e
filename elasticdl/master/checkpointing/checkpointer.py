"""What is done about a cut: the model is frozen, to be evaluated, and saved, to go back to.

When to cut, and who has to stand still for it, the state machine knows (`schedule.py`, `barrier.py`). Here the
parameter servers are told to freeze and to save, and files become a checkpoint with the ledger of the same moment.

Failure modes
    A server does not answer: its death arrives by the platform, and then there is no cut to take, or no checkpoint to
    finish, any more; until then it is tried again. So it is if a server was restored and no worker has told it the
    optimizer yet: one that stands still does. The disk is full, or a folder cannot be written: the checkpoint has
    failed, which the job is told; the one before it stays. Files that would not hold all of the model are not written:
    that is a failure, too.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from elasticdl.errors import UserError
from elasticdl.master.dataset_names import TRAINING
from elasticdl.ps.checkpoint import checkpoints, partial_folders
from elasticdl.ps.checkpoint.increments import Increments, Published
from elasticdl.ps.client.coordinator import Coordinator, said
from elasticdl.ps.core.buckets import BUCKETS

if TYPE_CHECKING:
    from elasticdl.master.master import Master

log = logging.getLogger("elasticdl.master")

# What could not be done is tried again when servers have had time to come back.
_AGAIN_SECONDS = 1.0
# A server's word that it cannot write its file, now or later: the disk does not take it, or there is no such copy that
# could be written.
_FINAL = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)


class Cutting:
    def __init__(self, master: Master, servers: Coordinator) -> None:
        self._master = master
        self._servers = servers
        # The cut for which the model is being frozen, and the one whose checkpoint is being written.
        self._taking = 0
        self._saving = 0
        # Another master's checkpoints are not built upon: whether servers still know them, nobody knows.
        self._increments = Increments(master.spec.checkpoint.checkpoint_increments)

    # -- where, and from where -------------------------------------------------------------------------------

    def folder(self) -> Path:
        """Where checkpoints are."""
        given = self._master.spec.checkpoint.checkpoint_dir
        return Path(given).resolve() if given else self._master.folder / "checkpoints"

    def save_folder(self) -> Path:
        """Where the files of the checkpoint of the present cut go."""
        # Not by the step: reports on their way when a worker is told of the cut still add some.
        cut = self._master.state.cut
        number = cut.number if cut is not None else 0
        return partial_folders.partial_folder(self.folder(), number, run=self._master.run_id)

    def begin(self) -> None:
        """Starts from the checkpoint that the job names, if it names one."""
        place = self._master.spec.checkpoint.checkpoint_dir_for_init
        if not place:
            return
        checkpoint = checkpoints.find_checkpoint(place)
        # What is missing is better told now than by servers.
        checkpoints.chain(checkpoint)
        ledger = self._ledger_to_continue(checkpoint)
        step = checkpoint.manifest.step if ledger is not None else 0
        self._master.do("begin", path=str(checkpoint.path.resolve()), step=step, ledger=ledger)
        if self._master.plan.kind == "train":
            how = (
                f"going on at step {step}" if ledger is not None else "with its values; the data starts anew"
            )
            log.info("Starting from the checkpoint %s, %s.", checkpoint.path, how)

    def _ledger_to_continue(self, checkpoint: checkpoints.Checkpoint) -> dict[str, Any] | None:
        """The ledger of a checkpoint, if it is about the same data and has something left to do."""
        plan = self._master.plan
        if plan.kind != "train" or checkpoint.manifest.attributes.get("data") != self._data_identity():
            return None
        if int(checkpoint.manifest.attributes.get("epochs_done", 0)) >= plan.epochs:
            return None
        return checkpoint.ledger()

    def _data_identity(self) -> dict[str, Any]:
        plan = self._master.plan
        return {
            "training_data": str(Path(self._master.spec.data.training_data).resolve()),
            "shard_size": plan.shard_size,
            "shuffle": plan.shuffle,
            "shuffle_seed": plan.seed,
            # Gone through in order by all together: there are no shards in between to be given out again.
            **({"order": "steps"} if plan.allreduce else {}),
        }

    # -- doing it --------------------------------------------------------------------------------------------

    def to_be_taken(self) -> int:
        """The cut that all stand still for, if nobody takes it yet: whoever asks has to. 0: there is none."""
        state = self._master.state
        if state.cut is None or self._taking == state.cut.number or not state.standstill.complete():
            return 0
        self._taking = state.cut.number
        return self._taking

    async def take(self, number: int) -> None:
        """Freezes the model. If that cannot be done yet, it is to be tried again."""
        taken = False
        try:
            taken = await self._take(number)
        finally:
            # If it is void already, another may be under way by now, which is not to be begun twice.
            if self._taking == number:
                self._taking = 0
        if not taken:
            # What has put it right meanwhile may have said so already.
            await asyncio.sleep(_AGAIN_SECONDS)
            self._master.wake()

    async def _take(self, number: int) -> bool:
        """Whether it is done."""
        placing = self._master.state.placing
        addresses = placing.addresses()
        if self._master.plan.servers and (not addresses or placing.handing_over):
            return False
        cut = self._master.state.cut
        if addresses:
            try:
                # A checkpoint must hold every gradient that the ledger counts, those too that wait for others.
                await self._servers.freeze_all(
                    addresses,
                    checkpoints.copy_name(number),
                    self._master.state.generation,
                    map_version=placing.map.version if placing.map is not None else 0,
                    flush=cut is not None and (cut.save or cut.flush),
                )
            except (grpc.RpcError, asyncio.TimeoutError) as error:
                # A server that died is told by the platform, and then there is no cut to take any more. The
                # next reconciliation tries again.
                log.warning("The model could not be frozen for cut %d yet: %s", number, said(error))
                return False
        self._master.do("cut_taken", cut=number)
        # Whoever waited here was not idle by its own fault.
        self._master.detector.restart_stall_timers()
        if self._master.state.saving is None and self._master.state.evaluation is None and addresses:
            await self._servers.release_all(addresses, checkpoints.copy_name(number))
        return True

    def to_be_saved(self) -> bool:
        """There is a cut to be saved, and nobody does it yet; whoever asks has to."""
        saving = self._master.state.saving
        if saving is None or self._saving == saving.cut:
            return False
        self._saving = saving.cut
        return True

    async def save(self) -> None:
        """Writes the checkpoint of a cut."""
        saving = self._master.state.saving
        if saving is None:
            return
        directory = self.folder()
        # First: what is left of others may be what fills the disk.
        await self._sweep(directory, saving.cut)
        if self._master.state.saving is not saving or self._master.state.outcome:
            # The model was lost meanwhile, and with it the copy; or the job is over, and its servers go.
            return
        partial = partial_folders.partial_folder(directory, saving.cut, run=self._master.run_id)
        # Not by those that are there: where there are none, files would be missing as well.
        served = bool(self._master.plan.servers)
        addresses = self._master.state.placing.addresses()
        generation = self._master.state.generation
        base = self._base(directory, generation) if served else None
        complete = True
        error = ""
        path = ""
        try:
            if served:
                # Of an attempt with other servers there may be files that do not belong to this one.
                shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True, exist_ok=True)
            entries = [checkpoints.SavedFile(**entry) for entry in saving.files]
            if served:
                entries, complete = await self._save_servers(addresses, saving.cut, partial, base)
            manifest = checkpoints.Manifest(
                step=saving.step,
                files=tuple(entries),
                base="" if complete or base is None else base.folder,
                base_crc32=0 if complete or base is None else base.manifest_crc32,
                attributes={
                    "job": self._master.spec.job_name,
                    "model_def": self._master.spec.model.model_def,
                    "owner": "worker" if self._master.plan.worker_owns_state else "ps",
                    "epochs_done": _epochs_done(saving.ledger),
                    "data": self._data_identity(),
                    "run": self._master.run_id,
                },
            )
            await asyncio.to_thread(checkpoints.write_manifest, partial, manifest, saving.ledger)
            if self._master.state.saving is not saving or self._master.state.generation != generation:
                # What it would hold has been given up meanwhile, and the one before is needed.
                log.warning("Checkpoint of step %d given up: the model was lost meanwhile.", saving.step)
                shutil.rmtree(partial, ignore_errors=True)
                return
            published = checkpoints.publish(partial, directory, saving.step)
            path = str(published)
            self._increments.add(
                Published(
                    folder=published.name,
                    manifest_crc32=checkpoints.file_crc32(published / checkpoints.MANIFEST),
                    copy=checkpoints.copy_name(saving.cut),
                    generation=generation,
                ),
                size=sum(entry.bytes for entry in entries),
                complete=complete,
            )
            since = "" if complete or base is None else f", with what has changed since {base.folder}"
            log.info("Checkpoint of step %d written to %s%s.", saving.step, path, since)
        except UserError as problem:
            error = str(problem)
        except OSError as problem:
            error = f"{directory}: {problem.strerror or problem}"
        except grpc.RpcError as problem:
            if problem.code() not in _FINAL:
                # The server is gone; its end arrives by the platform and voids this checkpoint.
                log.warning("Checkpoint of step %d given up: %s", saving.step, problem.details())
                # If it is void already, another may be under way by now, which is not to be begun twice.
                if self._master.state.saving is saving:
                    self._saving = 0
                await asyncio.sleep(_AGAIN_SECONDS)
                self._master.wake()
                return
            error = problem.details() or "a parameter server could not write its file"
        self._master.do("checkpoint_done", cut=saving.cut, path=path, error=error)
        if error:
            # Half of it is of no use, and may be what fills the disk.
            shutil.rmtree(partial, ignore_errors=True)
        else:
            # Only now: until then the job goes back to the one before.
            section = self._master.spec.checkpoint
            keep = section.keep_checkpoint_max if section.checkpoint_dir else 1
            try:
                await asyncio.to_thread(checkpoints.prune, directory, keep, own=Path(path))
            except OSError as problem:
                log.warning("%s: older checkpoints could not be removed: %s", directory, problem)
        if addresses and self._master.state.evaluation is None:
            with contextlib.suppress(grpc.RpcError, asyncio.TimeoutError):
                await self._servers.release_all(addresses, checkpoints.copy_name(saving.cut))

    async def _sweep(self, directory: Path, cut: int) -> None:
        """Removes what was left of checkpoints that nobody will finish."""
        try:
            swept = await asyncio.to_thread(
                partial_folders.sweep, directory, run=self._master.run_id, cut=cut, now=time.time()
            )
        except OSError as problem:
            log.warning("%s: what was left of checkpoints could not be removed: %s", directory, problem)
        else:
            for path in swept:
                log.info("%s removed: a checkpoint that was never finished.", path)

    def _base(self, directory: Path, generation: int) -> Published | None:
        """The checkpoint that the next one may build on. It may have been removed by somebody."""
        base = self._increments.base(generation)
        if base is None or checkpoints.find_base(directory, base.folder, base.manifest_crc32) is None:
            return None
        return base

    async def _save_servers(
        self, addresses: dict[int, str], cut: int, folder: Path, base: Published | None
    ) -> tuple[list[checkpoints.SavedFile], bool]:
        """Each writes what it is the primary of. The second: whether that is all, without a base."""
        placed = self._master.state.placing.map
        assert placed is not None
        primaries = {server: placed.primaries_of(server) for server in addresses}
        _check_coverage(primaries)
        writers = {server: address for server, address in addresses.items() if primaries[server]}
        since = base.copy if base is not None else ""
        return await self._servers.save_all(
            writers, checkpoints.copy_name(cut), folder, buckets=primaries, since=since
        )

    async def release(self, number: int) -> None:
        """After an evaluation: the servers may forget the frozen copy, unless it is still being saved."""
        addresses = self._master.state.placing.addresses()
        if addresses and (self._master.state.saving is None or self._master.state.saving.cut != number):
            with contextlib.suppress(grpc.RpcError, asyncio.TimeoutError):
                await self._servers.release_all(addresses, checkpoints.copy_name(number))


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
