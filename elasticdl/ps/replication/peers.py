"""What a store has to do with other servers: whom it tells what, whom it waits for, what it takes from whom. No I/O.

All of this happens under the store's lock, in the order of the store's own changes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.core.array_bodies import Mask, describe, lay_out, mask_of, numbers, pack
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.server_errors import NotPrimary
from elasticdl.ps.replication.replica_log import BucketCopy, Outbox, Roles, Routes, Ticket
from elasticdl.ps.storage.bucket_store import BucketStore
from elasticdl.wire import ps_pb2

# Parts of buckets on their way to a server. Pushes are told behind them, and workers wait for that. One is copied while
# another travels; with more, workers would wait longer, and nothing would arrive sooner.
_FILLS_AT_ONCE = 2
# Bytes of rows in a part: some milliseconds to copy and to take in, with everybody else waiting, however many rows a
# bucket has; and still many times what it takes to speak of it.
PART_BYTES = 4 << 20


@dataclass(kw_only=True)
class PendingReplication:
    """For acknowledgements of what happened to some buckets."""

    mask: Mask
    ticket: Ticket
    generation: int
    # Buckets that have become another's, who may not have it; whether anybody was not waited for to the end.
    lost: Mask = field(default_factory=lambda: np.zeros(BUCKETS, np.bool_))
    given_up: bool = False


class Peers:
    """For one generation."""

    def __init__(self, number: int, incarnation: str) -> None:
        self.roles = Roles(number, incarnation)
        self.outboxes: dict[int, Outbox] = {}
        # By sender and its incarnation: the last entry applied.
        self._received: dict[tuple[int, str], int] = {}
        # Buckets to be handed over, and what must have been acknowledged before.
        self._handing: list[tuple[int, Ticket]] = []
        # Those that were, and to which incarnation of whom: maps go on to list a handover until the master has heard of
        # it, and whoever has taken a bucket refuses to be handed it again.
        self._handed: dict[int, tuple[int, str]] = {}
        # Buckets of which there may be something here. And, by bucket, the newest map by which something of it has come
        # before that map: until then the bucket stays, and if the one that comes does not give it any more, it goes.
        self._held_before: Mask = np.ones(BUCKETS, np.bool_)
        self._ahead: NDArray[np.int64] = np.zeros(BUCKETS, np.int64)

    # -- maps ------------------------------------------------------------------------------------------------

    def update_routes(self, routes: Routes) -> bool:
        """A map has been published. Returns whether there is anything new in it but addresses."""
        known = self.roles.routes
        if known is not None and routes.map.version < known.map.version:
            return False
        if known is not None and routes.map.version == known.map.version:
            # Another map of the same version is of a master that has forgotten the last ones: what has been worked out
            # is by the one that is known.
            if routes.map == known.map:
                self.roles.routes = routes
            return False
        self.roles.update_routes(routes)
        current = routes.map
        handing = set(self.roles.to_hand_over())
        self._handed = {
            bucket: (peer, incarnation)
            for bucket, (peer, incarnation) in self._handed.items()
            if bucket in handing
            and current.primary[bucket] == peer
            and routes.incarnations.get(peer, incarnation) == incarnation
        }
        for peer, outbox in list(self.outboxes.items()):
            if routes.incarnations and routes.incarnations.get(peer) != outbox.incarnation:
                # It is gone, and whoever comes under its number has nothing of what it was told.
                del self.outboxes[peer]
            else:
                outbox.prune(self.roles.concerning(peer))
        return True

    def apply_map(self, bucket_store: BucketStore, fenced: Collection[str]) -> None:
        """Reconciles with the map: copies buckets, hands them over, drops them."""
        self.fill(bucket_store, fenced)
        self._handing = [
            (bucket, self._positions_of(bucket))
            for bucket in self.roles.to_hand_over()
            if bucket not in self._handed
        ]
        self._hand_over()
        kept = self.roles.held | (self._ahead > self.roles.version)
        gone = ~kept & self._held_before
        if gone.any():
            bucket_store.drop(gone)
        self._held_before = kept

    def fill(self, bucket_store: BucketStore, fenced: Collection[str]) -> bool:
        """Copies buckets that are to be copied, a little at a time to each server. Whether it has copied something."""
        waiting = self.roles.to_fill()
        # A copy without the rows that are still to be read would be taken for a whole one.
        if not waiting or bucket_store.tables.lacks_saved:
            return False
        has_copied = False
        for bucket, peer, copy in waiting:
            outbox = self._outbox(peer)
            while outbox.fills < _FILLS_AT_ONCE and not (copy and copy.complete):
                copy = self._fill(bucket_store, bucket, outbox, copy, fenced)
                has_copied = True
        return has_copied

    def _fill(
        self,
        bucket_store: BucketStore,
        bucket: int,
        outbox: Outbox,
        before: BucketCopy | None,
        fenced: Collection[str],
    ) -> BucketCopy:
        """The first part of a bucket, or the one after `before`.

        What happens to the bucket from the first part on is told behind it, also what happens to rows that are in later
        parts: there it is passed over, for these rows come with what has become of them here.
        """
        part = before.part + 1 if before else 0
        parts = before.parts if before else bucket_store.parts(bucket, PART_BYTES)
        if part:
            attributes, groups = bucket_store.export_part(bucket, part, parts)
            buckets: dict[str, int] = {}
        else:
            attributes, groups, buckets = bucket_store.export(bucket, parts=parts)
            attributes["fenced"] = sorted(fenced)
        heads, arrays = describe(groups, buckets)
        entry = ps_pb2.Entry(
            version=self.roles.version,
            buckets=pack(mask_of([bucket])),
            fill=ps_pb2.Fill(attributes=json.dumps(attributes), arrays=heads, part=part, parts=parts),
        )
        position = outbox.add(entry, lay_out(arrays))
        copy = BucketCopy(
            peer=outbox.peer, incarnation=outbox.incarnation, position=position, part=part, parts=parts
        )
        self.roles.copy(bucket, copy)
        return copy

    def _positions_of(self, bucket: int) -> Ticket:
        """All that those who hold a bucket from now on have been told."""
        current = self.roles.map
        assert current is not None
        holders = (current.primary[bucket], current.backup[bucket])
        return {peer: (outbox, outbox.last) for peer, outbox in self.outboxes.items() if peer in holders}

    def _hand_over(self) -> bool:
        """Tells new primaries that they are, as soon as everybody is up to date. Whether there was one to be told."""
        ready = [bucket for bucket, ticket in self._handing if not unacknowledged(ticket)]
        if not ready:
            return False
        self._handing = [(bucket, ticket) for bucket, ticket in self._handing if bucket not in ready]
        current = self.roles.map
        assert current is not None
        for peer in {current.primary[bucket] for bucket in ready}:
            theirs = mask_of(bucket for bucket in ready if current.primary[bucket] == peer)
            entry = ps_pb2.Entry(version=current.version, buckets=pack(theirs), handover=ps_pb2.Handover())
            outbox = self._outbox(peer)
            outbox.add(entry)
            self._handed |= dict.fromkeys(numbers(theirs), (peer, outbox.incarnation))
        return True

    # -- telling ---------------------------------------------------------------------------------------------

    def _outbox(self, peer: int) -> Outbox:
        if peer not in self.outboxes:
            assert self.roles.routes is not None
            self.outboxes[peer] = Outbox(peer, self.roles.routes.incarnations.get(peer, ""))
        return self.outboxes[peer]

    def replicate(self, mask: Mask, body: Sequence[memoryview], **what: Any) -> Ticket:
        """Appends an entry to the outbox of every other replica of some buckets."""
        ticket: Ticket = {}
        for peer, theirs in self.roles.targets.items():
            common = mask & theirs
            if common.any():
                outbox = self._outbox(peer)
                entry = ps_pb2.Entry(version=self.roles.version, buckets=pack(common), **what)
                ticket[peer] = (outbox, outbox.add(entry, body))
        return ticket

    def last_positions(self, mask: Mask) -> Ticket:
        """All that was told so far to those who have to know what happens to some buckets."""
        return {
            peer: (self.outboxes[peer], self.outboxes[peer].last)
            for peer, theirs in self.roles.targets.items()
            if peer in self.outboxes and (mask & theirs).any()
        }

    def acknowledge(self, outbox: Outbox, position: int) -> bool:
        """Whether somebody is to be told something because of it."""
        outbox.acknowledge(position)
        return self._hand_over()

    def is_acknowledged(self, waiting: PendingReplication) -> bool:
        """Whether others have what they were told, or have no need to."""
        waiting.ticket = unacknowledged(waiting.ticket)
        if not waiting.ticket:
            return True
        waiting.lost |= waiting.mask & ~self.roles.serving
        targets = self.roles.targets
        wanted = {
            peer: (outbox, position)
            for peer, (outbox, position) in waiting.ticket.items()
            if self.outboxes.get(peer) is outbox and peer in targets and (targets[peer] & waiting.mask).any()
        }
        waiting.given_up = waiting.given_up or len(wanted) < len(waiting.ticket)
        waiting.ticket = wanted
        return not wanted

    # -- being told ------------------------------------------------------------------------------------------

    def accept(self, sender: int, incarnation: str, entry: ps_pb2.Entry, mask: Mask) -> Mask | None:
        """The buckets for which an entry is to be carried out; None: it has been, before.

        Raises `NotPrimary` if the sender has no say in them any more.
        """
        if entry.position <= self.last_received(sender, incarnation):
            return None
        if not self.roles.accepts_from(sender, incarnation, entry, mask):
            raise NotPrimary(f"server {sender} is not the primary of these buckets any more")
        if entry.version <= self.roles.version:
            mask = mask & self.roles.held
        else:
            self._held_before = self._held_before | mask
            self._ahead[mask] = np.maximum(self._ahead[mask], entry.version)
        if entry.HasField("handover"):
            self.roles.take(mask, entry.version)
        return mask

    def last_received(self, sender: int, incarnation: str) -> int:
        """The position of the last entry of a sender that was applied; 0 if there is none."""
        return self._received.get((sender, incarnation), 0)

    def mark_received(self, sender: int, incarnation: str, position: int) -> None:
        self._received[sender, incarnation] = position

    # -- what the master wants to know -----------------------------------------------------------------------

    def filled(self) -> list[tuple[int, int, str]]:
        """Buckets that were copied, to whom, and which incarnation of it, and have arrived there."""
        return [
            (bucket, copy.peer, copy.incarnation)
            for bucket, copy in self.roles.copied.items()
            if copy.complete
            and copy.peer in self.outboxes
            and self.outboxes[copy.peer].acknowledged >= copy.position
        ]

    def taken(self) -> list[int]:
        """Buckets that were handed over to this server."""
        current = self.roles.map
        return sorted(
            bucket
            for bucket, version in self.roles.taken.items()
            if current is not None and version <= current.version and bucket in current.handover
        )


def unacknowledged(ticket: Ticket) -> Ticket:
    return {
        peer: (outbox, position)
        for peer, (outbox, position) in ticket.items()
        if outbox.acknowledged < position
    }
