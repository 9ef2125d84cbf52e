"""What the master asks of a parameter server: copies of the model for cuts, files of them, workers fenced off, figures.

All of it may be asked again. Some of it waits for other servers, which may hang: for no longer than it is `wanted`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from elasticdl.ps.checkpoint.array_file import Snapshot
from elasticdl.ps.core.array_bodies import Mask, mask_of
from elasticdl.ps.core.errors import NothingHeld, NotReady
from elasticdl.ps.protocol.answers import Fenced, Fencing, StoreStatus
from elasticdl.ps.replication.peers import Waiting
from elasticdl.ps.server.call_statistics import report
from elasticdl.ps.server.guarded_store import Guarded
from elasticdl.ps.storage.applied_updates import NO_BATCH
from elasticdl.ps.storage.frozen_copy import FrozenCopy, Written
from elasticdl.wire import ps_pb2


class MasterCalls(Guarded):
    def flush(
        self,
        *,
        generation: int,
        map_version: int = 0,
        seconds: float = 0.0,
        wanted: Callable[[], bool | None] | None = None,
    ) -> None:
        """Applies gradients that wait for more in synchronous training, few as they are; returns when backups have too.

        Before anybody freezes a copy to be saved: what a server is the backup of is in its copy as well, and must be
        the same there. The map is waited for as by `freeze`.
        """
        with self._lock:
            self._await_map(generation, map_version, seconds)
            self._check_confirmed()
            self._flush(self._roles.serving, generation, wanted)

    def _await_map(self, generation: int, version: int, seconds: float) -> None:
        self._changed.wait_for(lambda: self._roles.version >= version, seconds)
        self._check_generation(generation)
        if self._roles.version < version:
            raise NotReady(f"this server has not got map {version} yet")

    def _check_confirmed(self) -> None:
        """What was restored is not the model of this job before a worker has looked at it: a copy could lack rows, and
        would be worth nothing as soon as the optimizer is another.
        """
        if self._roles.complete.any() and not self._holdings.optimizer_confirmed:
            raise NotReady("no worker has told this server the optimizer yet")

    def _flush(self, mine: Mask, generation: int, wanted: Callable[[], bool | None] | None) -> None:
        with self._updating():
            self._holdings.flush(mine)
        told = self._tell(mine, (), flush=ps_pb2.Flush())
        self._wait(Waiting(mask=mine, ticket=told, generation=generation), wanted=wanted)
        self._check_generation(generation)

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
        """Keeps everything as it is now under a name, and returns its version. Again: changes nothing.

        With `flush`, as for a checkpoint, gradients that wait for more in synchronous training are applied first. What
        this server is the backup of is frozen, too, as its primaries have told it to be so far: they have to have
        flushed before. Only the newest map says what that is: it waits so many seconds for one of that version.
        `NotReady`: it has not come, or what is here was restored and no worker has confirmed it.
        """
        with self._lock:
            self._await_map(generation, map_version, seconds)
            if name not in self._frozen:
                mine = self._roles.serving
                cohorts = self._holdings.cohorts.select(mine)
                if not all(cohort.initialized for cohort in cohorts):
                    raise NothingHeld("no worker has given this server its initial values yet")
                self._check_confirmed()
                if flush:
                    self._flush(mine, generation, wanted)
                # Who asked before, and was not waited for, may have waited here too.
                if name not in self._frozen:
                    # Backups too: whoever takes over has what was frozen.
                    self._frozen[name] = FrozenCopy.make(self._holdings, self._roles.complete, mark=flush)
            return self._frozen[name].version

    def release(self, name: str) -> None:
        """Forgets a frozen copy; names that are not there are none either afterwards."""
        with self._lock:
            copy = self._frozen.pop(name, None)
            if copy is not None:
                copy.release(self._holdings)

    def frozen(self, name: str) -> Snapshot:
        """A frozen copy of what this server is the primary of, but for its tables."""
        with self._lock:
            return self._find_frozen(name).snapshot(self._roles.serving)

    def save(
        self,
        name: str,
        path: Path,
        buckets: Collection[int] = (),
        *,
        since: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> Written:
        """Writes some buckets of a frozen copy to a file.

        Without buckets, those that this server is the primary of. `since` is an earlier copy, which may have been
        released: of tables in buckets that this server has saved of it, and has had ever since, only what has changed
        is written. `check` is called now and then, and may raise to end it.
        """
        with self._lock:
            copy, holdings = self._find_frozen(name), self._holdings
            mask = mask_of(buckets) if buckets else self._roles.serving
        missing = mask & ~copy.mask
        if missing.any():
            raise NothingHeld(f"{missing.sum()} of these buckets are not in the frozen copy {name!r}")
        try:
            written = copy.write(path, holdings, mask, since=since, check=check)
        except ValueError:
            self._check_kept(name, copy)
            raise
        with self._lock:
            holdings.tables.remember(name, mask, copy.tables)
        return written

    def fence(
        self, worker: str, *, generation: int, wanted: Callable[[], bool | None] | None = None
    ) -> Fenced:
        """Takes nothing more from a worker, and tells its last batch that all buckets here have had.

        `NotReady`: it has to be asked again, as nothing is known here yet.
        """
        fencing = self.begin_fence(worker, generation=generation)
        with self._lock:
            self._wait(fencing.waiting, wanted=wanted)
        return fencing.answer()

    def begin_fence(self, worker: str, *, generation: int) -> Fencing:
        """A fence up to where others have to be waited for."""
        with self._lock:
            self._check_generation(generation)
            self._fenced.add(worker)
            mine = self._roles.serving
            cohorts = self._holdings.cohorts.select(mine)
            batches = [(cohort.mask.copy(), cohort.last.get(worker, NO_BATCH)) for cohort in cohorts]
            # What is counted as done from now on must be so after a loss, too.
            told = self._tell(mine, (), fence=worker)
            return Fencing(batches=batches, waiting=Waiting(mask=mine, ticket=told, generation=generation))

    def has_time(self, seconds: float) -> bool:
        """Whether a question would be answered within so long, and not after something that takes its time."""
        if not self._lock.acquire(timeout=seconds):
            return False
        self._lock.release()
        return True

    def status(self) -> StoreStatus:
        with self._lock:
            mine = self._roles.serving
            cohorts = [cohort for cohort in self._holdings.cohorts if (cohort.mask & mine).any()]
            trainable, state = self._holdings.values(mine)
            return StoreStatus(
                generation=self._generation,
                ready=self._ready,
                initialized=bool(cohorts) and all(cohort.initialized for cohort in cohorts),
                version=max((cohort.version for cohort in cohorts), default=0),
                parameters=sum(value.size for value in trainable.values()),
                bytes=sum(array.nbytes for array in [*trainable.values(), *state.values()])
                + self._holdings.tables.bytes,
                pushes=self._pushes,
                rows=self._holdings.tables.rows,
                not_finite=self._not_finite,
                refused=max((cohort.refused for cohort in cohorts), default=0),
                map=self._roles.map,
                loads=np.where(mine, self._loads, 0).tolist(),
                filled=self._peers.filled(),
                taken=self._peers.taken(),
                frozen=tuple(self._frozen),
            )

    def figures(self) -> ps_pb2.Figures:
        """What people want to know."""
        with self._lock:
            sizes, dense_bytes = self._holdings.tables.sizes(), self._holdings.dense.bytes
        seconds = time.monotonic() - self._started
        return report(self.tallies, sizes, dense_bytes=dense_bytes, seconds=seconds)
