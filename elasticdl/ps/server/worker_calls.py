"""The calls of workers to a parameter server: initialize, pull, push.

Pushes are idempotent: every worker numbers its batches, and a bucket skips a batch that it has had, so that a worker
may retry until it gets the reply. A push rejected as stale uses no number: the batch, computed again, has the same
number, and buckets that had applied it skip it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.resharding import STATE, TRAINABLE
from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.server_errors import NotFound, NotReady, WorkerFenced
from elasticdl.ps.core.tensors import Array, find_not_finite
from elasticdl.ps.embedding.table import Ids, TableFull, buckets_of
from elasticdl.ps.protocol.results import (
    InitializeResult,
    PendingInitialize,
    PendingPush,
    PullResult,
    PushResult,
)
from elasticdl.ps.replication.peers import PendingReplication
from elasticdl.ps.replication.replica_log import Roles, Served, Ticket
from elasticdl.ps.server.server_state import ALL_BUCKETS, ServerState
from elasticdl.ps.storage.bucket_store import InitialModel, Push
from elasticdl.ps.storage.table_set import NonFiniteGradient
from elasticdl.ps.storage.update_history import NO_BATCH, UpdateHistory
from elasticdl.wire import ps_pb2

_Result = TypeVar("_Result")


class WorkerCalls:
    """Safe to call from many threads."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def initialize(
        self,
        initial: InitialModel,
        *,
        generation: int,
        buckets: Mask | None = None,
        message: ps_pb2.InitializeRequest | None = None,
        body: Sequence[memoryview] = (),
    ) -> InitializeResult:
        """Takes the initial values, if there are none.

        Raises `UserError` if the existing values do not fit the caller's model. `message` and `body` as for `push`.
        """
        initializing = self.begin_initialize(
            initial, generation=generation, buckets=buckets, message=message, body=body
        )
        with self._state.lock:
            self._state.wait_replicated(initializing.waiting)
        return initializing.answer()

    def begin_initialize(
        self,
        initial: InitialModel,
        *,
        generation: int,
        buckets: Mask | None = None,
        message: ps_pb2.InitializeRequest | None = None,
        body: Sequence[memoryview] = (),
    ) -> PendingInitialize:
        """The same, up to the wait for acknowledgements."""
        self._state.import_optimizer(initial.optimizer)
        with self._state.lock:
            self._state.check_generation(generation)
            asked = ALL_BUCKETS if buckets is None else buckets
            mine = asked & self._state.roles.serving
            done_before = self._state.bucket_store.initialize(mine, initial) if mine.any() else False
            ticket = self._state.replicate(mine, body, initialize=message) if message is not None else {}
            # Migrations may have waited for this.
            if self._state.peers.migrate(self._state.bucket_store, self._state.fenced):
                self._state.wake_all()
            return PendingInitialize(
                done_before=done_before,
                moved=asked & ~mine,
                waiting=PendingReplication(mask=mine, ticket=ticket, generation=generation),
            )

    def pull(
        self,
        use: Callable[[PullResult], _Result],
        *,
        generation: int,
        frozen: str = "",
        known_version: int = -1,
        buckets: Mask | None = None,
    ) -> _Result:
        """Passes the values to `use` and returns its result.

        Live values change as soon as `use` returns: it has to copy them.
        """
        state = self._state
        asked = ALL_BUCKETS if buckets is None else buckets
        if not frozen:
            with state.lock:
                state.check_generation(generation)
                return use(self._pull_live(known_version, asked))
        # A snapshot never changes, so this needs no lock.
        published = state.published
        published.check_generation(generation)
        copy = published.find_snapshot(frozen)
        moved = asked & ~copy.mask
        if copy.version == known_version:
            return use(PullResult(initialized=True, version=copy.version, unchanged=True, moved=moved))
        # The snapshot has the buckets that this server backs up, too.
        groups = copy.snapshot(asked).groups
        return use(
            PullResult(
                initialized=True,
                version=copy.version,
                trainable=groups[TRAINABLE],
                state=groups[STATE],
                moved=moved,
            )
        )

    def _pull_live(self, known_version: int, asked: Mask) -> PullResult:
        store = self._state.bucket_store
        mine = asked & self._state.roles.serving
        moved = asked & ~mine
        histories = store.histories.select(mine)
        store.histories.merge(histories)
        histories = [history for history in histories if history.mask.any()]
        if not all(history.initialized for history in histories):
            return PullResult(initialized=False, moved=moved)
        version = min((history.version for history in histories), default=0)
        newer = [(history.mask, history.version) for history in histories if history.version > version]
        if known_version == version and not newer and not moved.any():
            return PullResult(initialized=True, version=version, unchanged=True, moved=moved)
        trainable, state = store.values(mine)
        return PullResult(
            initialized=True, version=version, newer=newer, trainable=trainable, state=state, moved=moved
        )

    def pull_rows(
        self,
        wanted: Sequence[tuple[str, Ids]],
        reserve: Callable[[Sequence[tuple[int, int]]], Sequence[Array]],
        *,
        generation: int,
        frozen: str = "",
        buckets: Mask | None = None,
    ) -> Mask:
        """Fills the arrays that `reserve` makes of (ids, width) with rows; returns the buckets that are not here.

        If there are any, the arrays are not valid. Takes no lock, so that it never waits for a push: see
        `PublishedState` for why what it returns is valid.
        """
        state = self._state
        asked = ALL_BUCKETS if buckets is None else buckets
        published = state.published
        published.check_generation(generation)
        copy = published.find_snapshot(frozen) if frozen else None
        served, tables = published.roles.served, published.tables
        moved = asked & ~(copy.mask if copy else served.mask)
        if moved.any():
            return moved
        arrays = reserve([(len(ids), tables.width(name)) for name, ids in wanted])
        copies = copy.tables if copy else {}
        statistics = state.statistics.of_thread()
        try:
            # Lookups run beside pushes, and are atomic by row.
            for (name, ids), array in zip(wanted, arrays, strict=True):
                counted = statistics.table(name)
                counted.found += tables.gather_into(name, ids, array, copies.get(name))
                counted.pulled += len(ids)
        except ValueError:
            if copy is not None:
                state.check_not_released(frozen, copy)
            raise
        if copy is None:
            moved = asked & ~self._still_served(published.roles, served, generation)
        if statistics.looks():
            state.statistics.look(wanted)
        return moved

    def _still_served(self, roles: Roles, before: Served, generation: int) -> Mask:
        """The buckets that have been served all the time, so that what was read without the lock is valid."""
        published = self._state.published
        published.check_generation(generation)
        if published.roles is not roles:
            raise NotReady("a new generation has begun")
        now = roles.served
        # Another object as soon as anything changes, which is rare.
        if now is before:
            return now.mask
        served: Mask = now.mask & (now.since == before.since)
        return served

    def export_rows(self, table: str, *, generation: int, buckets: Mask) -> tuple[Ids, Array, Mask]:
        """The ids with rows in some buckets, the rows, and those of the buckets that are served elsewhere."""
        published = self._state.published
        published.check_generation(generation)
        served = published.roles.served
        mine = buckets & served.mask
        ids, values = published.tables.export(table, mine)
        there = mine & self._still_served(published.roles, served, generation)
        if (there != mine).any():
            kept = there[buckets_of(ids, BUCKETS)]
            ids, values = ids[kept], values[kept]
        return ids, values, buckets & ~there

    def push(
        self, push: Push, *, message: ps_pb2.PushRequest | None = None, body: Sequence[memoryview] = ()
    ) -> PushResult:
        """Applies a batch, once. Raises `UserError` if it cannot be applied, and then nothing of it is.

        `message` and `body` are the call as it came: they are replicated, and may be reused as soon as this returns,
        unless the result says `in_use`.
        """
        pushing = self.begin_push(push, message=message, body=body)
        with self._state.lock:
            self._state.wait_replicated(pushing.waiting)
        return pushing.answer()

    def begin_push(
        self, push: Push, *, message: ps_pb2.PushRequest | None = None, body: Sequence[memoryview] = ()
    ) -> PendingPush:
        """A push, up to the wait for acknowledgements."""
        state = self._state
        bad = find_not_finite(push.gradients)
        with state.lock:
            state.check_generation(push.generation)
            if push.worker in state.fenced:
                raise WorkerFenced(f"the master has fenced {push.worker}")
            asked = ALL_BUCKETS if push.buckets is None else push.buckets
            mine = asked & state.roles.serving
            histories = state.bucket_store.histories_of(push, mine)
            new = self._select_new(push, histories)
            if new:
                self._check(push, new, bad)
            stale = [history for history in new if self._is_stale(history, push)]
            accepted = [history for history in new if not self._is_stale(history, push)]
            applied = np.logical_or.reduce([history.mask for history in accepted], initial=False) & mine
            ticket: Ticket = {}
            # Replicated first, so that the backup applies it at the same time. But a user-defined optimizer may fail,
            # and a failed push must not be replicated.
            replicates_first = not state.bucket_store.runs_users_code
            if message is not None and replicates_first:
                ticket = state.replicate(applied, body, push=message)
            if accepted:
                self._count(push, max(push.age(history) for history in accepted))
                with state.update():
                    state.bucket_store.apply(push, accepted)
                state.counters.add_push(push.rows)
            if message is not None and not replicates_first:
                ticket = state.replicate(applied, body, push=message)
            if message is not None and len(accepted) < len(histories):
                # A retry: the first attempt may not have been acknowledged yet.
                ticket = state.peers.last_positions(mine)
            versions = [history.last.get(push.worker, NO_BATCH).version for history in histories]
            if stale:
                versions = [history.version for history in stale]
            return PendingPush(
                accepted=not stale,
                version=min(versions, default=0),
                refused=max((history.refused for history in histories), default=0),
                moved=asked & ~mine,
                waiting=PendingReplication(mask=mine, ticket=ticket, generation=push.generation),
            )

    def _select_new(self, push: Push, histories: Iterable[UpdateHistory]) -> list[UpdateHistory]:
        """The histories that have not had this batch."""
        state = self._state
        new = []
        for history in histories:
            if not history.initialized:
                raise NotFound("this server has not got initial values from a worker yet")
            if not state.bucket_store.has_optimizer:
                raise NotFound("this server has not got the optimizer from a worker yet")
            last = history.last.get(push.worker, NO_BATCH)
            if push.sequence < last.sequence or push.sequence < 1:
                raise ValueError(f"batch {push.sequence} of {push.worker} comes after batch {last.sequence}")
            if push.sequence > last.sequence:
                new.append(history)
        return new

    def _check(self, push: Push, histories: Sequence[UpdateHistory], bad: str | None) -> None:
        if bad is not None:
            self._count_not_finite()
            raise NonFiniteGradient.of(bad, worker=push.worker)
        if push.not_finite:
            self._check_refused(push, histories)
        if not math.isfinite(push.learning_rate):
            raise UserError(f"The learning rate is {push.learning_rate}, which is not finite.")
        try:
            self._state.bucket_store.check(
                push, np.logical_or.reduce([history.mask for history in histories])
            )
        except NonFiniteGradient as error:
            self._count_not_finite()
            raise NonFiniteGradient(
                f"{error.message.removesuffix('.')}, in a batch of {push.worker}.", hint=error.hint
            ) from None
        except TableFull as error:
            for name, refused in error.refused.items():
                self._state.statistics.of_thread().table(name).refused += refused
            raise

    def _check_refused(self, push: Push, histories: Sequence[UpdateHistory]) -> None:
        allowed = self._state.settings.max_bad_gradients
        if max(history.refused for history in histories) >= allowed:
            self._count_not_finite()
            raise NonFiniteGradient.of(push.not_finite, worker=push.worker, allowed=allowed)

    def _count(self, push: Push, staleness: int) -> None:
        if push.not_finite:
            self._count_not_finite()
            return
        statistics = self._state.statistics.of_thread()
        statistics.staleness.add(max(0, staleness))
        for name, part in push.rows.items():
            statistics.table(name).pushed += len(part.ids)

    def _count_not_finite(self) -> None:
        self._state.counters.add_non_finite()
        self._state.statistics.of_thread().not_finite += 1

    def _is_stale(self, history: UpdateHistory, push: Push) -> bool:
        too_old = push.age(history) > self._state.settings.sync_version_tolerance
        # A batch that is not applied cannot be stale.
        is_applied = not push.not_finite and not push.has_been_applied(history)
        return self._state.settings.synchronous and too_old and is_applied
