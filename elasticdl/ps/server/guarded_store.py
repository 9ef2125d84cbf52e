"""What a parameter server holds, behind one lock: what all calls to it share.

Generations: when a bucket is lost with all its copies, what others hold is worth nothing by itself. The master raises
the generation, and everything here is dropped and restored from the last checkpoint. Calls of a lower generation are
refused for good, those of a higher one for now.

Failures of the user's own optimizer: they leave an update half done, so what is here is worth nothing from then on. No
other server has been told of such a push, whoever calls hears of the error, and it is reported (`failed`).

What happens to a bucket is told to whoever has to know, in the order in which it happens: that is what the lock is for.
Who waits until it is known (`_wait`) lets the lock go meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.platforms.platform import EXIT_OUT_OF_MEMORY
from elasticdl.ps.checkpoint.array_file import Snapshot
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.core.array_bodies import Mask, mask_of
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.errors import NothingHeld, NotReady, NotWantedAnyMore, OldGeneration
from elasticdl.ps.embedding.custom_optimizer import PYTHON
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.replication.peers import Peers, Waiting
from elasticdl.ps.replication.replica_log import Ticket
from elasticdl.ps.server.call_statistics import Tallies
from elasticdl.ps.storage.frozen_copy import FrozenCopy
from elasticdl.ps.storage.holdings import Holdings, ServerSettings
from elasticdl.wire import ps_pb2

log = logging.getLogger("elasticdl.ps")

_EXIT_FAULT = 1
# How long it takes to notice that somebody does not wait any more for whom others are waited for.
_GONE_SECONDS = 0.5
EVERYTHING: Mask = np.ones(BUCKETS, np.bool_)


class Guarded:
    """Safe to call from many threads. Methods with an underscore are for those who have the lock."""

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
        # Maps, generations, who has to be told something.
        self._changed = threading.Condition(self._lock)
        # What every push brings has conditions of its own, so that it wakes only those who wait for it: an outbox has
        # got something, others have acknowledged something.
        self._told = threading.Condition(self._lock)
        self._acknowledged = threading.Condition(self._lock)
        self._number = number
        self._incarnation = incarnation
        self.tallies = Tallies()
        self._started = time.monotonic()
        self._generation = -1
        self._ready = False
        self._stopped = False
        self._clear()

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
        with self._lock:
            self._clear()
            self._generation = generation
            self._ready = False
            self._wake()

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
        with self._lock:
            if restored is not None:
                known = self._roles.map
                mine = EVERYTHING if known is None else mask_of(known.copies_on(self._number))
                self._holdings.restore(restored.attributes, restored.groups, buckets or {}, tables, mine)
            self._ready = True
            if self._roles.routes is not None:
                self._peers.obey(self._holdings, self._fenced)
            self._wake()

    def stop(self) -> None:
        """Nobody is waited for any more: calls that do are not answered with success."""
        with self._lock:
            self._stopped = True
            self._wake()

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

    @contextlib.contextmanager
    def _updating(self) -> Iterator[None]:
        """An update that comes to an end, or else nothing that is here is used any more."""
        try:
            yield
        except UserError as error:
            self._break(error)
            raise
        except BaseException as error:
            # A fault of ours, or no memory. Values of which some have had the update are those of nobody: this process
            # is given up, and others go on with their copies, or from the last checkpoint.
            log.critical("An update has failed in the middle.", exc_info=True)
            os._exit(EXIT_OUT_OF_MEMORY if isinstance(error, MemoryError) else _EXIT_FAULT)

    def _break(self, error: UserError) -> None:
        self._broken = error
        self._failed(error)

    def _find_frozen(self, name: str) -> FrozenCopy:
        if name not in self._frozen:
            raise NothingHeld(f"there is no frozen copy {name!r} here")
        return self._frozen[name]

    def _check_kept(self, name: str, copy: FrozenCopy) -> None:
        """Without the lock. Raises `NothingHeld` if a frozen copy has been released since it was found."""
        with self._lock:
            if self._frozen.get(name) is not copy:
                raise NothingHeld(f"the frozen copy {name!r} has just been released") from None

    def _wake(self) -> None:
        """Everybody looks whether it concerns them."""
        for condition in (self._changed, self._told, self._acknowledged):
            condition.notify_all()

    def _tell(self, mask: Mask, body: Sequence[memoryview], **what: Any) -> Ticket:
        known = len(self._peers.outboxes)
        ticket = self._peers.tell(mask, body, **what)
        if len(self._peers.outboxes) > known:
            self._changed.notify_all()
        if ticket:
            self._told.notify_all()
        return ticket

    def _wait(self, waiting: Waiting, *, wanted: Callable[[], bool | None] | None = None) -> Waiting:
        """Waits until others have what they were told, or until nobody wants that any more: `NotWantedAnyMore`."""
        while not self._poll(waiting):
            if wanted is not None and not wanted():
                raise NotWantedAnyMore("whoever asked has gone")
            self._acknowledged.wait(None if wanted is None else _GONE_SECONDS)
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
