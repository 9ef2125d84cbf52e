"""One parameter server's side of all calls: who may ask for what, in which order things happen, when to answer. No I/O.

Exactly once: every worker numbers its batches. A bucket that has had a batch passes over it when it comes again, so a
worker may repeat a push until it hears the answer. A push that was refused because its values were too old used no
number up: the batch, computed again, comes under the same one, and buckets that had taken it before pass over it.

Buckets: a call is for some buckets. What is for buckets that this server is not the primary of is not carried out, and
the answer says which those are. Who else has to know of a change is told (`replication.py`), before the answer.

Generations: when a bucket is lost with all its copies, what others hold is worth nothing by itself. The master raises
the generation, and everything here is dropped and restored from the last checkpoint. Calls of a lower generation are
refused for good, those of a higher one for now.

Failures of the user's own optimizer: they leave an update half done, so what is here is worth nothing from then on. No
other server has been told of such a push, whoever calls hears of the error, and it is reported (`failed`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from elasticdl.jobs.errors import UserError
from elasticdl.ps.answers import Initialized, Pulled, Pushed, Pushing, StoreStatus
from elasticdl.ps.bodies import Mask, mask_of
from elasticdl.ps.buckets import BUCKETS
from elasticdl.ps.cohorts import Cohort, LastPush
from elasticdl.ps.custom import PYTHON
from elasticdl.ps.failures import NothingHeld, NotReady, OldGeneration, WorkerFenced
from elasticdl.ps.frozen import FrozenCopy, Written
from elasticdl.ps.holdings import Holdings, Initial, Push, ServerSettings
from elasticdl.ps.messages import optimizer_of
from elasticdl.ps.optimizers import make_optimizer
from elasticdl.ps.peers import Peers, Waiting
from elasticdl.ps.replication import Outbox, Routes, Ticket
from elasticdl.ps.shares import STATE, TRAINABLE
from elasticdl.ps.snapshot import Snapshot
from elasticdl.ps.table import Ids, TableFull
from elasticdl.ps.table_files import SavedTables
from elasticdl.ps.tables import NotFinite, count_by_bucket
from elasticdl.ps.tally import Tallies, report
from elasticdl.ps.tensors import Array, find_not_finite
from elasticdl.wire import ps_pb2

__all__ = ["Initial", "Initialized", "Pulled", "Push", "Pushed", "ServerSettings", "Store", "StoreStatus"]

log = logging.getLogger("elasticdl.ps")

_Result = TypeVar("_Result")
_EVERYTHING: Mask = np.ones(BUCKETS, np.bool_)
_NO_BATCH = LastPush()
# Of so many pushes one is looked at to see which buckets are much used.
_SAMPLED = 8


class Store:
    """Safe to call from many threads."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        number: int = 0,
        incarnation: str = "",
        failed: Callable[[UserError], None] = lambda error: None,
    ) -> None:
        """`failed` is told of errors that end the job, as soon as there is one: a primary's caller hears of it as well,
        a backup has none. It is called in the middle of things, and must not call back.
        """
        self._settings = settings
        self._failed = failed
        self._lock = threading.Lock()
        # Something that others wait for has changed: acknowledgements, maps, outboxes.
        self._changed = threading.Condition(self._lock)
        self._number = number
        self._incarnation = incarnation
        self.tallies = Tallies()
        self._started = time.monotonic()
        self._generation = -1
        self._ready = False
        self._stopped = False
        self._clear()

    # -- generations -----------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._holdings = Holdings(self._settings)
        self._peers = Peers(self._number, self._incarnation)
        self._roles = self._peers.roles
        self._pushes = 0
        self._not_finite = 0
        self._loads = np.zeros(BUCKETS, np.int64)
        self._fenced: set[str] = set()
        self._frozen: dict[str, FrozenCopy] = {}
        # What was held is worth nothing since this happened.
        self._broken: UserError | None = None

    def close(self, generation: int) -> None:
        """A generation begins: drops everything, and refuses calls until `open`. The map may be seen before that."""
        with self._changed:
            self._clear()
            self._generation = generation
            self._ready = False
            self._changed.notify_all()

    def open(
        self,
        restored: Snapshot | None = None,
        *,
        buckets: Mapping[str, int] | None = None,
        tables: SavedTables | None = None,
    ) -> None:
        """Ready to be called: with the values of a snapshot, whose arrays become the store's own, or empty.

        `buckets`: of the dense arrays, where the snapshot is only a part of what it was made of. `tables`: where rows
        are read from, those that the map, if there is one, gives to this server.
        """
        if restored is not None and restored.attributes.get("optimizer"):
            self._import(ps_pb2.OptimizerConfig(**restored.attributes["optimizer"]))
        with self._changed:
            if restored is not None:
                self._holdings.restore(
                    restored.attributes, restored.groups, buckets or {}, tables, self._roles.complete
                )
            self._ready = True
            if self._roles.routes is not None:
                self._peers.obey(self._holdings, self._fenced)
            self._changed.notify_all()

    def stop(self) -> None:
        """Nobody is waited for any more: calls that do are not answered with success."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def number(self) -> int:
        return self._number

    @property
    def incarnation(self) -> str:
        return self._incarnation

    def _check_generation(self, generation: int) -> None:
        if generation < self._generation:
            raise OldGeneration(f"generation {generation} is over, this is generation {self._generation}")
        if generation > self._generation or not self._ready:
            raise NotReady(f"this server is not ready for generation {generation} yet")
        if self._broken is not None:
            raise UserError(self._broken.message, hint=self._broken.hint)

    def _import(self, optimizer: ps_pb2.OptimizerConfig) -> None:
        """If it is the user's own, has its module loaded: by whoever does not hold the lock, since it takes its time.

        What is wrong with it is told when it is used.
        """
        if optimizer.flavor != PYTHON:
            return
        if self._holdings.lacks(optimizer):
            with contextlib.suppress(UserError):
                make_optimizer(optimizer, model_zoo=self._settings.model_zoo)
        elif optimizer.source != (self._holdings.optimizer or {}).get("source", ""):
            log.warning("A worker has another file of the optimizer %s. It is not used here.", optimizer.name)

    def _break(self, error: UserError) -> None:
        self._broken = error
        self._failed(error)

    # -- workers ---------------------------------------------------------------------------------------------

    def initialize(
        self,
        initial: Initial,
        *,
        generation: int,
        buckets: Mask | None = None,
        message: ps_pb2.InitializeRequest | None = None,
        body: Sequence[memoryview] = (),
    ) -> Initialized:
        """Takes the initial values, if there are none.

        Raises `UserError` if those that there are do not fit the caller's model. `message` and `body` as for `push`.
        """
        self._import(initial.optimizer)
        with self._changed:
            self._check_generation(generation)
            asked = _EVERYTHING if buckets is None else buckets
            mine = asked & self._roles.serving
            done_before = self._holdings.initialize(mine, initial) if mine.any() else False
            ticket = self._tell(mine, body, initialize=message) if message is not None else {}
            waiting = self._wait(Waiting(mask=mine, ticket=ticket, generation=generation))
            return Initialized(
                done_before=done_before, moved=(asked & ~mine) | waiting.lost, in_use=waiting.given_up
            )

    def pull(
        self,
        use: Callable[[Pulled], _Result],
        *,
        generation: int,
        frozen: str = "",
        known_version: int = -1,
        buckets: Mask | None = None,
    ) -> _Result:
        """Hands the values to `use` and returns what it returns.

        Live values change as soon as `use` is over: it has to take a copy.
        """
        with self._lock:
            self._check_generation(generation)
            if not frozen:
                return use(self._pull_live(known_version, _EVERYTHING if buckets is None else buckets))
            copy = self._find_frozen(frozen)
        # A frozen copy never changes, so others need not wait for this.
        moved = (_EVERYTHING if buckets is None else buckets) & ~copy.mask
        if copy.version == known_version:
            return use(Pulled(initialized=True, version=copy.version, unchanged=True, moved=moved))
        groups = copy.groups
        return use(
            Pulled(
                initialized=True,
                version=copy.version,
                trainable=groups[TRAINABLE],
                state=groups[STATE],
                moved=moved,
            )
        )

    def _pull_live(self, known_version: int, asked: Mask) -> Pulled:
        mine = asked & self._roles.serving
        moved = asked & ~mine
        cohorts = self._holdings.cohorts.select(mine)
        self._holdings.cohorts.merge(cohorts)
        cohorts = [cohort for cohort in cohorts if cohort.mask.any()]
        if not all(cohort.initialized for cohort in cohorts):
            return Pulled(initialized=False, moved=moved)
        version = min((cohort.version for cohort in cohorts), default=0)
        if len(cohorts) == 1 and known_version == version and not moved.any():
            return Pulled(initialized=True, version=version, unchanged=True, moved=moved)
        trainable, state = self._holdings.values(mine)
        return Pulled(initialized=True, version=version, trainable=trainable, state=state, moved=moved)

    def pull_rows(
        self,
        wanted: Sequence[tuple[str, Ids]],
        reserve: Callable[[Sequence[tuple[int, int]]], Sequence[Array]],
        *,
        generation: int,
        frozen: str = "",
        buckets: Mask | None = None,
    ) -> Mask:
        """Fills the arrays that `reserve` makes of (ids, width) with rows; returns buckets that are not here.

        If there are any, nothing is filled.
        """
        asked = _EVERYTHING if buckets is None else buckets
        with self._lock:
            self._check_generation(generation)
            copy = self._find_frozen(frozen) if frozen else None
            here = copy.mask if copy else self._roles.serving
            moved = asked & ~here
            if moved.any():
                return moved
            tables = self._holdings.tables
            arrays = reserve([(len(ids), tables.width(name)) for name, ids in wanted])
            copies = copy.tables if copy else {}
        tally = self.tallies.mine()
        # Lookups may go on while pushes are applied, and meet them row by row.
        for (name, ids), array in zip(wanted, arrays, strict=True):
            counted = tally.table(name)
            counted.found += tables.gather_into(name, ids, array, copies.get(name))
            counted.pulled += len(ids)
        if tally.looks():
            self.tallies.look(wanted)
        return moved

    def export_rows(self, table: str, *, generation: int, buckets: Mask) -> tuple[Ids, Array, Mask]:
        """The ids that have rows in some buckets, and the rows; and those of the buckets that are served elsewhere."""
        with self._lock:
            self._check_generation(generation)
            mine = buckets & self._roles.serving
        ids, values = self._holdings.tables.export(table, mine)
        return ids, values, buckets & ~mine

    def push(
        self, push: Push, *, message: ps_pb2.PushRequest | None = None, body: Sequence[memoryview] = ()
    ) -> Pushed:
        """Applies a batch, once. Raises `UserError` if it cannot be applied, and then nothing of it is.

        `message` and `body` are the call as it came: whoever has to be told is told with these, and they may be reused
        as soon as this returns, unless the answer says otherwise.
        """
        pushing = self.begin_push(push, message=message, body=body)
        with self._changed:
            self._wait(pushing.waiting)
        return pushing.answer()

    def begin_push(
        self, push: Push, *, message: ps_pb2.PushRequest | None = None, body: Sequence[memoryview] = ()
    ) -> Pushing:
        """A push up to where others have to be waited for."""
        bad = find_not_finite(push.gradients)
        with self._changed:
            self._check_generation(push.generation)
            if push.worker in self._fenced:
                raise WorkerFenced(f"the master has given up {push.worker}")
            asked = _EVERYTHING if push.buckets is None else push.buckets
            mine = asked & self._roles.serving
            cohorts = self._holdings.cohorts.select(mine)
            new = self._not_yet(push, cohorts)
            if new:
                self._check(push, new, bad)
            stale = [cohort for cohort in new if self._is_stale(cohort, push)]
            accepted = [cohort for cohort in new if not self._is_stale(cohort, push)]
            applied = np.logical_or.reduce([cohort.mask for cohort in accepted], initial=False) & mine
            ticket: Ticket = {}
            # Told first: others apply it while this server does. But what the user's own code says to it nobody knows
            # before it has been run.
            tells_first = not self._holdings.runs_users_code
            if message is not None and tells_first:
                ticket = self._tell(applied, body, push=message)
            if accepted:
                self._count(push, max(cohort.version for cohort in accepted) - push.version)
                try:
                    self._holdings.apply(push, accepted)
                except UserError as error:
                    self._break(error)
                    raise
                if self._pushes % _SAMPLED == 0:
                    self._loads += 1 + count_by_bucket(part.ids for part in push.rows.values())
                self._pushes += 1
            if message is not None and not tells_first:
                ticket = self._tell(applied, body, push=message)
            if message is not None and len(accepted) < len(cohorts):
                # It is a repetition: what it repeats may not have been acknowledged yet.
                ticket = self._peers.told(mine)
            versions = [cohort.last.get(push.worker, _NO_BATCH).version for cohort in cohorts]
            if stale:
                versions = [cohort.version for cohort in stale]
            return Pushing(
                accepted=not stale,
                version=min(versions, default=0),
                refused=max((cohort.refused for cohort in cohorts), default=0),
                moved=asked & ~mine,
                waiting=Waiting(mask=mine, ticket=ticket, generation=push.generation),
            )

    def _not_yet(self, push: Push, cohorts: Iterable[Cohort]) -> list[Cohort]:
        """The cohorts that have not had this batch."""
        new = []
        for cohort in cohorts:
            if not cohort.initialized:
                raise NothingHeld("no worker has given this server its initial values yet")
            if not self._holdings.has_optimizer:
                raise NothingHeld("no worker has told this server the optimizer yet")
            last = cohort.last.get(push.worker, _NO_BATCH)
            if push.sequence < last.sequence or push.sequence < 1:
                raise ValueError(f"batch {push.sequence} of {push.worker} comes after batch {last.sequence}")
            if push.sequence > last.sequence:
                new.append(cohort)
        return new

    def _check(self, push: Push, cohorts: Sequence[Cohort], bad: str | None) -> None:
        if bad is not None:
            self._count_not_finite()
            raise NotFinite.of(bad, worker=push.worker)
        if push.not_finite:
            self._check_refused(push, cohorts)
        if not math.isfinite(push.learning_rate):
            raise UserError(f"The learning rate is {push.learning_rate}, which is no number.")
        try:
            self._holdings.check(push, np.logical_or.reduce([cohort.mask for cohort in cohorts]))
        except NotFinite as error:
            self._count_not_finite()
            raise NotFinite(
                f"{error.message.removesuffix('.')}, in a batch of {push.worker}.", hint=error.hint
            ) from None
        except TableFull as error:
            for name, refused in error.refused.items():
                self.tallies.mine().table(name).refused += refused
            raise

    def _check_refused(self, push: Push, cohorts: Sequence[Cohort]) -> None:
        allowed = self._settings.max_bad_gradients
        if max(cohort.refused for cohort in cohorts) >= allowed:
            self._count_not_finite()
            raise NotFinite.of(push.not_finite, worker=push.worker, allowed=allowed)

    def _count(self, push: Push, staleness: int) -> None:
        if push.not_finite:
            self._count_not_finite()
            return
        tally = self.tallies.mine()
        tally.staleness.add(max(0, staleness))
        for name, part in push.rows.items():
            tally.table(name).pushed += len(part.ids)

    def _count_not_finite(self) -> None:
        self._not_finite += 1
        self.tallies.mine().not_finite += 1

    def _is_stale(self, cohort: Cohort, push: Push) -> bool:
        tolerated = cohort.version - self._settings.sync_version_tolerance
        # Where nothing is applied, nothing is too old for it.
        return self._settings.synchronous and push.version < tolerated and not push.not_finite

    # -- the master ------------------------------------------------------------------------------------------

    def flush(self, *, generation: int, map_version: int = 0, seconds: float = 0.0) -> None:
        """Applies gradients that wait for more in synchronous training, few as they are; returns when backups have too.

        Before anybody freezes a copy to be saved: what a server is the backup of is in its copy as well, and must be
        the same there. The map is waited for as by `freeze`.
        """
        with self._changed:
            self._await_map(generation, map_version, seconds)
            self._flush(self._roles.serving, generation)

    def _await_map(self, generation: int, version: int, seconds: float) -> None:
        self._changed.wait_for(lambda: self._roles.version >= version, seconds)
        self._check_generation(generation)
        if self._roles.version < version:
            raise NotReady(f"this server has not got map {version} yet")

    def _flush(self, mine: Mask, generation: int) -> None:
        try:
            self._holdings.flush(mine)
        except UserError as error:
            self._break(error)
            raise
        told = self._tell(mine, (), flush=ps_pb2.Flush())
        self._wait(Waiting(mask=mine, ticket=told, generation=generation))
        self._check_generation(generation)

    def freeze(
        self, name: str, *, generation: int, flush: bool = False, map_version: int = 0, seconds: float = 0.0
    ) -> int:
        """Keeps everything as it is now under a name, and returns its version. Again: changes nothing.

        With `flush`, as for a checkpoint, gradients that wait for more in synchronous training are applied first. What
        this server is the backup of is frozen, too, as its primaries have told it to be so far: they have to have
        flushed before. Only the newest map says what that is: it waits so many seconds for one of that version.
        `NotReady`: it has not come.
        """
        with self._changed:
            self._await_map(generation, map_version, seconds)
            if name not in self._frozen:
                mine = self._roles.serving
                cohorts = self._holdings.cohorts.select(mine)
                if not all(cohort.initialized for cohort in cohorts):
                    raise NothingHeld("no worker has given this server its initial values yet")
                if flush:
                    self._flush(mine, generation)
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
        written = copy.write(path, holdings, mask, since=since, check=check)
        with self._lock:
            holdings.tables.remember(name, mask, copy.tables)
        return written

    def _find_frozen(self, name: str) -> FrozenCopy:
        if name not in self._frozen:
            raise NothingHeld(f"there is no frozen copy {name!r} here")
        return self._frozen[name]

    def fence(self, worker: str) -> LastPush | None:
        """Takes nothing more from a worker, and tells its last batch that all buckets here have had.

        None: this server is nobody's primary.
        """
        with self._changed:
            self._fenced.add(worker)
            mine = self._roles.serving
            cohorts = self._holdings.cohorts.select(mine)
            last = min(
                (cohort.last.get(worker, _NO_BATCH) for cohort in cohorts),
                key=lambda last: last.sequence,
                default=None,
            )
            # What is counted as done from now on must be so after a loss, too.
            told = self._tell(mine, (), fence=worker)
            self._wait(Waiting(mask=mine, ticket=told, generation=self._generation))
            return last

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

    # -- other servers ---------------------------------------------------------------------------------------

    def see(self, routes: Routes) -> None:
        """A map has been published. One that is not newer changes nothing but addresses."""
        with self._changed:
            if self._peers.see(routes) and self._ready:
                self._peers.obey(self._holdings, self._fenced)
            self._changed.notify_all()

    def _tell(self, mask: Mask, body: Sequence[memoryview], **what: Any) -> Ticket:
        ticket = self._peers.tell(mask, body, **what)
        if ticket:
            self._changed.notify_all()
        return ticket

    def _wait(self, waiting: Waiting) -> Waiting:
        """Waits until others have what they were told."""
        while not self._poll(waiting):
            self._changed.wait()
        return waiting

    def poll(self, waiting: Waiting) -> bool:
        """Whether others have what they were told, or have no need to."""
        with self._lock:
            return self._poll(waiting)

    def _poll(self, waiting: Waiting) -> bool:
        if self._stopped and waiting.ticket:
            raise NotReady("this server is about to end")
        if self._generation != waiting.generation and waiting.ticket:
            raise OldGeneration(f"generation {waiting.generation} is over")
        return self._peers.is_over(waiting)

    def receive(
        self,
        sender: int,
        incarnation: str,
        generation: int,
        entry: ps_pb2.Entry,
        mask: Mask,
        apply: Callable[[Holdings, Mask], None],
    ) -> None:
        """Carries out what a primary has done to some buckets, in its order.

        Raises `NotHere` if the sender has no say in them any more, `UserError` if the user's own optimizer is not to
        be had here, or fails where it did not there.
        """
        if not self._holdings.has_optimizer and (optimizer := optimizer_of(entry)) is not None:
            self._import(optimizer)
        with self._changed:
            self._check_generation(generation)
            accepted = self._peers.accept(sender, incarnation, entry, mask)
            if accepted is None:
                return
            if entry.HasField("fence"):
                self._fenced.add(entry.fence)
            elif accepted.any() and not entry.HasField("handover"):
                try:
                    apply(self._holdings, accepted)
                except UserError as error:
                    self._break(error)
                    raise
                if entry.HasField("fill"):
                    self._fenced |= set(json.loads(entry.fill.attributes).get("fenced", ()))
            self._peers.received[sender, incarnation] = entry.position
            self._changed.notify_all()

    def received(self, sender: int, incarnation: str, generation: int) -> int:
        """The last entry of a sender that was carried out."""
        with self._lock:
            self._check_generation(generation)
            return self._peers.received.get((sender, incarnation), 0)

    def next_told(
        self, outbox: Outbox, position: int, *, seconds: float
    ) -> tuple[int, bytes, Sequence[memoryview]] | None:
        """The position and the entry to be sent after that one, as soon as there is one.

        None: not for so long, or not any more.
        """
        with self._changed:
            if outbox.after(position) is None and self._peers.outboxes.get(outbox.peer) is outbox:
                self._changed.wait(seconds)
            told = outbox.after(position)
            if told is None or self._peers.outboxes.get(outbox.peer) is not outbox:
                return None
            # As it is now: a newer map may change it.
            return told.entry.position, told.entry.SerializeToString(), told.body

    def acknowledge(self, outbox: Outbox, position: int) -> None:
        with self._changed:
            self._peers.acknowledge(outbox, position)
            self._changed.notify_all()

    def correspondents(self, known: Sequence[Outbox], *, seconds: float) -> list[Outbox]:
        """All outboxes, as soon as others than the known ones are among them."""
        with self._changed:
            if all(outbox in known for outbox in self._peers.outboxes.values()):
                self._changed.wait(seconds)
            return list(self._peers.outboxes.values())

    def address_of(self, outbox: Outbox) -> str | None:
        """Where what is in an outbox goes; None: nowhere any more."""
        with self._lock:
            routes = self._roles.routes
            if routes is None or self._peers.outboxes.get(outbox.peer) is not outbox:
                return None
            return routes.addresses.get(outbox.peer, "")

    def wake(self) -> None:
        """For those who wait for one thing and have to look at another."""
        with self._changed:
            self._changed.notify_all()
