"""The state of a parameter server, and the one lock that guards it.

Workers, the master and other servers call at the same time (`worker_calls.py`, `master_calls.py`, `peer_calls.py`).
Each of these gets this one, takes its lock, and leaves the state consistent before it releases it. The lock also
orders replication: what happens to a bucket is appended to the outboxes of its replicas in the order in which it
happens. A call that waits for acknowledgements (`wait_replicated`) releases the lock meanwhile.

Pulls of rows take no lock, so that they never wait for a push: `PublishedState` has what they check.

Generations: when a bucket is lost with all its replicas, the other buckets are useless by themselves. The master
raises the generation; every server drops its state and restores the last checkpoint. Calls of a lower generation fail
for good, calls of a higher one until this server has caught up.

Failures of a user-defined optimizer leave an update half done. From then on the state is invalid: the push is not
replicated, every caller gets the error, and `failed` reports it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.platforms.platform import EXIT_OUT_OF_MEMORY
from elasticdl.ps.checkpoint.array_file import NamedArrays
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.core.array_bodies import Mask, mask_of
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.server_errors import CallCancelled, NotFound, NotReady, StaleGeneration
from elasticdl.ps.embedding.custom_optimizer import PYTHON
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.replication.peers import Peers, PendingReplication
from elasticdl.ps.replication.replica_log import Roles, Ticket
from elasticdl.ps.server.call_statistics import CallStatistics, PushCounters
from elasticdl.ps.storage.bucket_store import BucketStore, ServerSettings
from elasticdl.ps.storage.copy_on_write_snapshot import CopyOnWriteSnapshot
from elasticdl.ps.storage.table_set import Tables
from elasticdl.wire import ps_pb2

log = logging.getLogger("elasticdl.ps")

_EXIT_FAULT = 1
# How often a waiting call checks whether its caller is still there.
_CALLER_CHECK_SECONDS = 0.5
ALL_BUCKETS: Mask = np.ones(BUCKETS, np.bool_)


@dataclass(frozen=True, kw_only=True)
class PublishedState:
    """The state that every call checks: immutable, replaced under the lock, and read without it.

    A reader takes it once and so sees one consistent state. It then reads rows without the lock, while the state may
    change. What keeps it from returning what is not valid any more:

    - A generation begins with new `roles` and new `tables`. The old tables stay as they were for their readers,
      and these see afterwards that `roles` is another object.
    - A bucket is dropped after `roles.served` was replaced, never before; it is served after all of it has arrived. So
      rows are valid if their buckets were served, without a break, before they were read and after.
    - A snapshot is released after it was removed from `snapshots`. A lookup in a released one fails.
    - Locks of the table order lookups and updates of a row (native/table.h): no row is torn.
    """

    generation: int
    ready: bool
    roles: Roles
    tables: Tables
    snapshots: Mapping[str, CopyOnWriteSnapshot] = field(default_factory=dict)
    # The error that made the state invalid.
    broken: UserError | None = None

    def check_generation(self, generation: int) -> None:
        if generation < self.generation:
            raise StaleGeneration(f"generation {generation} is over, this is generation {self.generation}")
        if generation > self.generation or not self.ready:
            raise NotReady(f"this server is not ready for generation {generation} yet")
        if self.broken is not None:
            raise UserError(self.broken.message, hint=self.broken.hint)

    def find_snapshot(self, name: str) -> CopyOnWriteSnapshot:
        if name not in self.snapshots:
            raise NotFound(f"there is no snapshot {name!r} here")
        return self.snapshots[name]


class ServerState:
    """The lock, and all that it guards. Methods say whether the caller holds the lock."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        number: int = 0,
        incarnation: str = "",
        failed: Callable[[UserError], None] = lambda error: None,
    ) -> None:
        """`failed` is called at once with errors that fail the job: the caller of a primary gets them as well, a
        backup has no caller. It runs under the lock and must not call back.
        """
        self.settings = settings
        self.number = number
        self.incarnation = incarnation
        self.lock = threading.Lock()
        # A new map, another generation, a new outbox.
        self.changed = threading.Condition(self.lock)
        # Separate conditions for the two events of every push, so that each wakes only its own waiters.
        self.entry_added = threading.Condition(self.lock)
        self.acknowledged = threading.Condition(self.lock)
        self.statistics = CallStatistics()
        self.started = time.monotonic()
        self._failed = failed
        self._stopped = False
        self._clear(-1)

    def _clear(self, generation: int) -> None:
        # Assigned only here: others change these objects, and never replace them.
        self.bucket_store = BucketStore(self.settings)
        self.peers = Peers(self.number, self.incarnation)
        self.roles = self.peers.roles
        self.counters = PushCounters()
        self._fenced: set[str] = set()
        self._published = PublishedState(
            generation=generation, ready=False, roles=self.roles, tables=self.bucket_store.tables
        )

    # -- generations: called without the lock ----------------------------------------------------------------

    def close(self, generation: int) -> None:
        """Begins a generation: drops everything, and rejects calls until `open`. Maps are accepted before that."""
        with self.lock:
            self._clear(generation)
            self.wake_all()

    def open(
        self,
        restored: NamedArrays | None = None,
        *,
        buckets: Mapping[str, int] | None = None,
        tables: SavedTables | None = None,
    ) -> None:
        """Accepts calls from now on: with restored values, whose arrays become the store's own, or empty.

        Args:
            restored: dense values and attributes of a checkpoint.
            buckets: the bucket of each dense array, needed if `restored` is only a share of the checkpoint.
            tables: the source of table rows; only buckets that the map, if any, places on this server are read.
        """
        if restored is not None and restored.attributes.get("optimizer"):
            self.import_optimizer(ps_pb2.OptimizerConfig(**restored.attributes["optimizer"]))
        with self.lock:
            if restored is not None:
                known = self.roles.map
                mine = ALL_BUCKETS if known is None else mask_of(known.copies_on(self.number))
                self.bucket_store.restore(restored.attributes, restored.groups, buckets or {}, tables, mine)
            self._publish(ready=True)
            if self.roles.routes is not None:
                self.peers.apply_map(self.bucket_store, self._fenced)
            self.wake_all()

    def stop(self) -> None:
        """Ends all waiting for acknowledgements: such calls fail from now on."""
        with self.lock:
            self._stopped = True
            self.wake_all()

    @property
    def published(self) -> PublishedState:
        """The newest one. May be read without the lock."""
        return self._published

    @property
    def generation(self) -> int:
        return self._published.generation

    @property
    def is_ready(self) -> bool:
        return self._published.ready

    @property
    def fenced(self) -> AbstractSet[str]:
        return self._fenced

    @property
    def snapshot_names(self) -> tuple[str, ...]:
        return tuple(self._published.snapshots)

    # -- called with the lock --------------------------------------------------------------------------------

    def _publish(self, **changes: Any) -> None:
        self._published = replace(self._published, **changes)

    def check_generation(self, generation: int) -> None:
        self._published.check_generation(generation)

    def fence(self, workers: Iterable[str]) -> None:
        """Rejects pushes of these workers from now on."""
        self._fenced.update(workers)

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """Wraps an update that either completes or makes the state invalid."""
        try:
            yield
        except UserError as error:
            self.invalidate(error)
            raise
        except BaseException as error:
            # A bug, or out of memory. The update is half applied, so this process must not serve its values: it exits,
            # and the job goes on with the other replicas or from the last checkpoint.
            log.critical("Exiting: an update failed half way", exc_info=True)
            os._exit(EXIT_OUT_OF_MEMORY if isinstance(error, MemoryError) else _EXIT_FAULT)

    def invalidate(self, error: UserError) -> None:
        """Every call fails with this error from now on."""
        self._publish(broken=error)
        self._failed(error)

    def find_snapshot(self, name: str) -> CopyOnWriteSnapshot:
        return self._published.find_snapshot(name)

    def add_snapshot(self, name: str, *, mark: bool) -> None:
        """Takes a snapshot of all buckets that are complete here: a backup that is promoted has it, too."""
        snapshot = CopyOnWriteSnapshot.make(self.bucket_store, self.roles.complete, mark=mark)
        self._publish(snapshots={**self._published.snapshots, name: snapshot})

    def remove_snapshot(self, name: str) -> None:
        """Idempotent."""
        snapshots = dict(self._published.snapshots)
        snapshot = snapshots.pop(name, None)
        if snapshot is not None:
            self._publish(snapshots=snapshots)
            snapshot.release(self.bucket_store)

    def wake_all(self) -> None:
        """Wakes every waiter, after an event that may concern any of them."""
        for condition in (self.changed, self.entry_added, self.acknowledged):
            condition.notify_all()

    def replicate(self, mask: Mask, body: Sequence[memoryview], **what: Any) -> Ticket:
        """Appends an entry to the outboxes of the other replicas of some buckets."""
        known = len(self.peers.outboxes)
        ticket = self.peers.replicate(mask, body, **what)
        if len(self.peers.outboxes) > known:
            self.changed.notify_all()
        if ticket:
            self.entry_added.notify_all()
        return ticket

    def wait_replicated(
        self, waiting: PendingReplication, *, wanted: Callable[[], bool | None] | None = None
    ) -> PendingReplication:
        """Waits for the acknowledgements. Raises `CallCancelled` as soon as the caller has gone (`wanted`)."""
        while not self._is_replicated(waiting):
            if wanted is not None and not wanted():
                raise CallCancelled("the caller has gone")
            self.acknowledged.wait(None if wanted is None else _CALLER_CHECK_SECONDS)
        return waiting

    def _is_replicated(self, waiting: PendingReplication) -> bool:
        if self._stopped and waiting.ticket:
            raise NotReady("this server is stopping")
        if self.generation != waiting.generation and waiting.ticket:
            raise StaleGeneration(f"generation {waiting.generation} is over")
        return self.peers.is_acknowledged(waiting)

    # -- called without the lock -----------------------------------------------------------------------------

    def is_replicated(self, waiting: PendingReplication) -> bool:
        """Whether all replicas that still matter have acknowledged."""
        with self.lock:
            return self._is_replicated(waiting)

    def check_not_released(self, name: str, snapshot: CopyOnWriteSnapshot) -> None:
        """Raises `NotFound` if a snapshot has been released since it was found."""
        if self._published.snapshots.get(name) is not snapshot:
            raise NotFound(f"the snapshot {name!r} has just been released") from None

    def import_optimizer(self, optimizer: ps_pb2.OptimizerConfig) -> None:
        """Imports the module of a user-defined optimizer, which takes time and so happens without the lock.

        Errors in it are raised when it is used.
        """
        if optimizer.flavor != PYTHON:
            return
        if self.bucket_store.lacks(optimizer):
            with contextlib.suppress(UserError):
                make_optimizer(optimizer, model_zoo=self.settings.model_zoo)
        elif optimizer.source != (self.bucket_store.optimizer or {}).get("source", ""):
            log.warning("Ignoring a worker's different file of the optimizer %s", optimizer.name)
