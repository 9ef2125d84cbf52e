"""The calls of the master to a parameter server: snapshots for checkpoints, saving them, fencing workers, status.

All of them are idempotent. Some wait for other servers, which may hang: no longer than the caller is there (`wanted`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from elasticdl.ps.checkpoint.array_file import NamedArrays
from elasticdl.ps.core.array_bodies import Mask, mask_of
from elasticdl.ps.core.server_errors import NotFound, NotReady
from elasticdl.ps.protocol.results import FenceResult, PendingFence, StoreStatus
from elasticdl.ps.replication.peers import PendingReplication
from elasticdl.ps.server.call_statistics import report
from elasticdl.ps.server.server_state import ServerState
from elasticdl.ps.storage.copy_on_write_snapshot import WrittenFile
from elasticdl.ps.storage.update_history import NO_BATCH
from elasticdl.wire import ps_pb2


class MasterCalls:
    """Safe to call from many threads."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def flush(
        self,
        *,
        generation: int,
        map_version: int = 0,
        seconds: float = 0.0,
        wanted: Callable[[], bool | None] | None = None,
    ) -> None:
        """Applies incomplete sums of gradients (synchronous training), here and on backups.

        Called before all servers take a snapshot for a checkpoint: the snapshot of a backup has to be the same. Waits
        for the map as `freeze` does.
        """
        with self._state.lock:
            self._await_map(generation, map_version, seconds)
            self._check_confirmed()
            self._flush(self._state.roles.serving, generation, wanted)

    def _await_map(self, generation: int, version: int, seconds: float) -> None:
        self._state.changed.wait_for(lambda: self._state.roles.version >= version, seconds)
        self._state.check_generation(generation)
        if self._state.roles.version < version:
            raise NotReady(f"this server has not got map {version} yet")

    def _check_confirmed(self) -> None:
        """Restored values are not the model of this job before a worker has confirmed it: a snapshot could lack rows,
        and would be invalid if the job has another optimizer.
        """
        if self._state.roles.complete.any() and not self._state.bucket_store.optimizer_confirmed:
            raise NotReady("this server has not got the optimizer from a worker yet")

    def _flush(self, mine: Mask, generation: int, wanted: Callable[[], bool | None] | None) -> None:
        with self._state.update():
            self._state.bucket_store.flush(mine)
        ticket = self._state.replicate(mine, (), flush=ps_pb2.Flush())
        self._state.wait_replicated(
            PendingReplication(mask=mine, ticket=ticket, generation=generation), wanted=wanted
        )
        self._state.check_generation(generation)

    def freeze(
        self,
        name: str,
        *,
        generation: int,
        flush: bool = False,
        map_version: int = 0,
        seconds: float = 0.0,
        wanted: Callable[[], bool | None] | None = None,
    ) -> int:
        """Takes a copy-on-write snapshot under a name, and returns its version. Idempotent.

        With `flush`, as for a checkpoint, incomplete sums of gradients are applied first (synchronous training). The
        buckets that this server backs up are in the snapshot, too: their primaries have to have flushed before. Waits
        `seconds` for a map of this version, which says which buckets these are. Raises `NotReady` if the map has not
        come, or if no worker has confirmed restored values.
        """
        with self._state.lock:
            self._await_map(generation, map_version, seconds)
            if name not in self._state.snapshot_names:
                mine = self._state.roles.serving
                histories = self._state.bucket_store.histories.select(mine)
                if not all(history.initialized for history in histories):
                    raise NotFound("this server has not got initial values from a worker yet")
                self._check_confirmed()
                if flush:
                    self._flush(mine, generation, wanted)
                # A repeated call may have waited for the same acknowledgements.
                if name not in self._state.snapshot_names:
                    self._state.add_snapshot(name, mark=flush)
            return self._state.find_snapshot(name).version

    def release(self, name: str) -> None:
        """Releases a snapshot. Idempotent."""
        with self._state.lock:
            self._state.remove_snapshot(name)

    def frozen(self, name: str) -> NamedArrays:
        """The snapshot of the buckets that this server is the primary of, without tables."""
        with self._state.lock:
            return self._state.find_snapshot(name).snapshot(self._state.roles.serving)

    def save(
        self,
        name: str,
        path: Path,
        buckets: Collection[int] = (),
        *,
        since: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> WrittenFile:
        """Writes some buckets of a snapshot to a file.

        Args:
            buckets: by default those that this server is the primary of.
            since: an earlier snapshot, possibly released. Of tables in buckets that this server saved then and has
                held ever since, only the changes are written.
            check: called now and then; may raise to cancel.
        """
        with self._state.lock:
            copy, bucket_store = self._state.find_snapshot(name), self._state.bucket_store
            mask = mask_of(buckets) if buckets else self._state.roles.serving
        missing = mask & ~copy.mask
        if missing.any():
            raise NotFound(f"{missing.sum()} of these buckets are not in the snapshot {name!r}")
        try:
            written = copy.write(path, bucket_store, mask, since=since, check=check)
        except ValueError:
            self._state.check_not_released(name, copy)
            raise
        with self._state.lock:
            bucket_store.tables.remember(name, mask, copy.tables)
        return written

    def fence(
        self, worker: str, *, generation: int, wanted: Callable[[], bool | None] | None = None
    ) -> FenceResult:
        """Rejects all further pushes of a worker, and returns its last batch that all buckets here have applied.

        Raises `NotReady` if nothing is known here yet: to be retried.
        """
        fencing = self.begin_fence(worker, generation=generation)
        with self._state.lock:
            self._state.wait_replicated(fencing.waiting, wanted=wanted)
        return fencing.answer()

    def begin_fence(self, worker: str, *, generation: int) -> PendingFence:
        """A fence, up to the wait for acknowledgements."""
        with self._state.lock:
            self._state.check_generation(generation)
            self._state.fence([worker])
            mine = self._state.roles.serving
            histories = self._state.bucket_store.histories.select(mine)
            batches = [(history.mask.copy(), history.last.get(worker, NO_BATCH)) for history in histories]
            # Replicated, so that the fence holds after the loss of this server.
            ticket = self._state.replicate(mine, (), fence=worker)
            return PendingFence(
                batches=batches, waiting=PendingReplication(mask=mine, ticket=ticket, generation=generation)
            )

    def has_time(self, seconds: float) -> bool:
        """Whether the lock is free within so many seconds, so that a status call can be answered."""
        if not self._state.lock.acquire(timeout=seconds):
            return False
        self._state.lock.release()
        return True

    def status(self) -> StoreStatus:
        with self._state.lock:
            mine = self._state.roles.serving
            histories = [
                history for history in self._state.bucket_store.histories if (history.mask & mine).any()
            ]
            trainable, state = self._state.bucket_store.values(mine)
            return StoreStatus(
                generation=self._state.generation,
                ready=self._state.is_ready,
                initialized=bool(histories) and all(history.initialized for history in histories),
                version=max((history.version for history in histories), default=0),
                parameters=sum(value.size for value in trainable.values()),
                bytes=sum(array.nbytes for array in [*trainable.values(), *state.values()])
                + self._state.bucket_store.tables.bytes,
                pushes=self._state.counters.pushes,
                rows=self._state.bucket_store.tables.rows,
                not_finite=self._state.counters.non_finite,
                refused=max((history.refused for history in histories), default=0),
                map=self._state.roles.map,
                loads=np.where(mine, self._state.counters.loads, 0).tolist(),
                filled=self._state.peers.filled(),
                taken=self._state.peers.taken(),
                frozen=self._state.snapshot_names,
            )

    def figures(self) -> ps_pb2.Figures:
        """Statistics for people: calls, tables, memory."""
        with self._state.lock:
            sizes, dense_bytes = self._state.bucket_store.tables.sizes(), self._state.bucket_store.dense.bytes
        seconds = time.monotonic() - self._state.started
        return report(self._state.statistics, sizes, dense_bytes=dense_bytes, seconds=seconds)
