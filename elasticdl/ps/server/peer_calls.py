"""The calls between parameter servers: bucket maps, replicated entries, acknowledgements.

`replication/` decides what is replicated to which server and whose entries are accepted; `replication_streams.py` moves
the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from elasticdl.errors import UserError
from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.protocol.call_codec import optimizer_of
from elasticdl.ps.replication.replica_log import Outbox, Routes
from elasticdl.ps.server.server_state import ServerState
from elasticdl.ps.storage.bucket_store import BucketStore
from elasticdl.wire import ps_pb2


class PeerCalls:
    """Safe to call from many threads."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def update_routes(self, routes: Routes) -> None:
        """Takes a published map. One that is not newer changes only addresses."""
        with self._state.lock:
            if self._state.peers.update_routes(routes) and self._state.is_ready:
                self._state.peers.apply_map(self._state.bucket_store, self._state.fenced)
            self._state.wake_all()

    def receive(
        self,
        sender: int,
        incarnation: str,
        generation: int,
        entry: ps_pb2.Entry,
        mask: Mask,
        apply: Callable[[BucketStore, Mask], None],
    ) -> None:
        """Applies an entry of a primary to some buckets, in its order.

        Raises `NotPrimary` if the sender is not their primary any more, `UserError` if the user-defined optimizer
        cannot be imported, or fails here and did not there.
        """
        optimizer = optimizer_of(entry)
        if optimizer is not None and self._state.bucket_store.lacks(optimizer):
            self._state.import_optimizer(optimizer)
        with self._state.lock:
            self._state.check_generation(generation)
            accepted = self._state.peers.accept(sender, incarnation, entry, mask)
            if accepted is None:
                return
            if entry.HasField("fence"):
                self._state.fence([entry.fence])
            elif accepted.any() and not entry.HasField("handover"):
                try:
                    apply(self._state.bucket_store, accepted)
                except UserError as error:
                    self._state.invalidate(error)
                    raise
                if entry.HasField("fill"):
                    self._state.fence(json.loads(entry.fill.attributes).get("fenced", ()))
            self._state.peers.mark_received(sender, incarnation, entry.position)

    def received(self, sender: int, incarnation: str, generation: int) -> int:
        """The position of the last entry of a sender that was applied."""
        with self._state.lock:
            self._state.check_generation(generation)
            return self._state.peers.last_received(sender, incarnation)

    def next_entry(
        self, outbox: Outbox, position: int, *, seconds: float
    ) -> tuple[int, bytes, Sequence[memoryview]] | None:
        """The position and the entry to send after that one; waits for one.

        None: the time is over, or the outbox is closed.
        """
        with self._state.lock:
            if outbox.after(position) is None and self._state.peers.outboxes.get(outbox.peer) is outbox:
                self._state.entry_added.wait(seconds)
            added = outbox.after(position)
            if added is None or self._state.peers.outboxes.get(outbox.peer) is not outbox:
                return None
            # As it is now: a newer map may change it.
            return added.entry.position, added.entry.SerializeToString(), added.body

    def acknowledge(self, outbox: Outbox, position: int) -> None:
        with self._state.lock:
            has_new = self._state.peers.acknowledge(outbox, position)
            if self._state.is_ready:
                # A part has arrived, so the next one can be sent.
                has_new = self._state.peers.migrate(self._state.bucket_store, self._state.fenced) or has_new
            if has_new:
                # There are new entries to send.
                self._state.wake_all()
            else:
                self._state.acknowledged.notify_all()

    def wait_for_outboxes(self, known: Sequence[Outbox], *, seconds: float) -> list[Outbox]:
        """Returns all outboxes as soon as there is a new one, or when the time is over."""
        with self._state.lock:
            if all(outbox in known for outbox in self._state.peers.outboxes.values()):
                self._state.changed.wait(seconds)
            return list(self._state.peers.outboxes.values())

    def address_of(self, outbox: Outbox) -> str | None:
        """The address of the receiver; None: the outbox is closed."""
        with self._state.lock:
            routes = self._state.roles.routes
            if routes is None or self._state.peers.outboxes.get(outbox.peer) is not outbox:
                return None
            return routes.addresses.get(outbox.peer, "")

    def wake(self) -> None:
        """Wakes all waiting calls, so that they check their connection."""
        with self._state.lock:
            self._state.wake_all()
