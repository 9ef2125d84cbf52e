"""What parameter servers have to say to each other: maps, entries that one tells the other, acknowledgements.

What is told to whom, and who has a say in what, is decided in `peers.py` and `replica_log.py`; how it travels is in
`replication_streams.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from elasticdl.errors import UserError
from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.protocol.messages import optimizer_of
from elasticdl.ps.replication.replica_log import Outbox, Routes
from elasticdl.ps.server.guarded_store import Guarded
from elasticdl.ps.storage.holdings import Holdings
from elasticdl.wire import ps_pb2


class ServerCalls(Guarded):
    def see(self, routes: Routes) -> None:
        """A map has been published. One that is not newer changes nothing but addresses."""
        with self._lock:
            if self._peers.see(routes) and self._ready:
                self._peers.obey(self._holdings, self._fenced)
            self._wake()

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
        optimizer = optimizer_of(entry)
        if optimizer is not None and self._holdings.lacks(optimizer):
            self._import(optimizer)
        with self._lock:
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
        with self._lock:
            if outbox.after(position) is None and self._peers.outboxes.get(outbox.peer) is outbox:
                self._told.wait(seconds)
            told = outbox.after(position)
            if told is None or self._peers.outboxes.get(outbox.peer) is not outbox:
                return None
            # As it is now: a newer map may change it.
            return told.entry.position, told.entry.SerializeToString(), told.body

    def acknowledge(self, outbox: Outbox, position: int) -> None:
        with self._lock:
            told = self._peers.acknowledge(outbox, position)
            if self._ready:
                # Something has arrived: there is room for more on the way.
                told = self._peers.fill(self._holdings, self._fenced) or told
            if told:
                # What was only waiting for this has been told.
                self._wake()
            else:
                self._acknowledged.notify_all()

    def correspondents(self, known: Sequence[Outbox], *, seconds: float) -> list[Outbox]:
        """All outboxes, as soon as others than the known ones are among them."""
        with self._lock:
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
        with self._lock:
            self._wake()
