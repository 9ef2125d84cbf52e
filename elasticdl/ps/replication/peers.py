"""The replication state of one server: its outboxes, migrations and handovers, and the entries it has applied. No I/O.

Used under the server's lock, in the order of the server's own changes.
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

# Parts of buckets on their way to a server. Pushes queue behind them, and workers wait for that. One is copied while
# another travels; with more, workers would wait longer, and nothing would arrive sooner.
_MIGRATIONS_IN_FLIGHT = 2
# Bytes of rows in a part: some milliseconds to copy and to apply, during which all other calls wait; large enough that
# the overhead of a message does not matter.
PART_BYTES = 4 << 20


@dataclass(kw_only=True)
class PendingReplication:
    """The acknowledgements that a change of some buckets waits for."""

    mask: Mask
    ticket: Ticket
    generation: int
    # Buckets whose primary has changed meanwhile: the new one may not have the change. And whether some replica was
    # dropped from the wait, so that the message may still be in use.
    lost: Mask = field(default_factory=lambda: np.zeros(BUCKETS, np.bool_))
    given_up: bool = False


class Peers:
    """The other servers, for one generation."""

    def __init__(self, number: int, incarnation: str) -> None:
        self.roles = Roles(number, incarnation)
        self.outboxes: dict[int, Outbox] = {}
        # By sender and its incarnation: the last entry applied.
        self._received: dict[tuple[int, str], int] = {}
        # Buckets to be handed over, and what must have been acknowledged before.
        self._handing: list[tuple[int, Ticket]] = []
        # Those that were, and to which server and incarnation: maps list a handover until the master knows that it is
        # done, and the new primary rejects a second one.
        self._handed: dict[int, tuple[int, str]] = {}
        # Buckets of which there may be something here. And, by bucket, the newest map by which something of it has come
        # before that map: until then the bucket stays, and if the one that comes does not give it any more, it goes.
        self._held_before: Mask = np.ones(BUCKETS, np.bool_)
        self._ahead: NDArray[np.int64] = np.zeros(BUCKETS, np.int64)

    # -- maps ------------------------------------------------------------------------------------------------

    def update_routes(self, routes: Routes) -> bool:
        """Takes a published map. Returns whether anything but addresses is new."""
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
                # It is gone, and the next process under its number has none of these entries.
                del self.outboxes[peer]
            else:
                outbox.prune(self.roles.concerning(peer))
        return True

    def apply_map(self, bucket_store: BucketStore, fenced: Collection[str]) -> None:
        """Reconciles with the map: copies buckets, hands them over, drops them."""
        self.migrate(bucket_store, fenced)
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

    def migrate(self, bucket_store: BucketStore, fenced: Collection[str]) -> bool:
        """Migrates buckets, a little at a time to each server. Returns whether it has added an entry."""
        waiting = self.roles.to_migrate()
        # A copy without the rows that are still to be restored would look complete.
        if not waiting or bucket_store.tables.lacks_saved:
            return False
        has_copied = False
        for bucket, peer, copy in waiting:
            outbox = self._outbox(peer)
            while outbox.migrations_in_flight < _MIGRATIONS_IN_FLIGHT and not (copy and copy.complete):
                copy = self._migrate_part(bucket_store, bucket, outbox, copy, fenced)
                has_copied = True
        return has_copied

    def _migrate_part(
        self,
        bucket_store: BucketStore,
        bucket: int,
        outbox: Outbox,
        before: BucketCopy | None,
        fenced: Collection[str],
    ) -> BucketCopy:
        """The first part of a bucket, or the one after `before`.

        Updates of the bucket are replicated behind its first part, also those of rows in later parts: the receiver
        skips these, since the rows come with the updates applied.
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
        """The last positions in the outboxes of the servers that hold a bucket from now on."""
        current = self.roles.map
        assert current is not None
        holders = (current.primary[bucket], current.backup[bucket])
        return {peer: (outbox, outbox.last) for peer, outbox in self.outboxes.items() if peer in holders}

    def _hand_over(self) -> bool:
        """Hands over the buckets whose replicas are all up to date. Returns whether there were any."""
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

    # -- replicating -----------------------------------------------------------------------------------------

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
        """The last positions in the outboxes of the other replicas of some buckets."""
        return {
            peer: (self.outboxes[peer], self.outboxes[peer].last)
            for peer, theirs in self.roles.targets.items()
            if peer in self.outboxes and (mask & theirs).any()
        }

    def acknowledge(self, outbox: Outbox, position: int) -> bool:
        """Returns whether it has made a handover possible."""
        outbox.acknowledge(position)
        return self._hand_over()

    def is_acknowledged(self, waiting: PendingReplication) -> bool:
        """Whether all replicas that still matter have acknowledged."""
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

    # -- receiving -------------------------------------------------------------------------------------------

    def accept(self, sender: int, incarnation: str, entry: ps_pb2.Entry, mask: Mask) -> Mask | None:
        """The buckets for which to apply an entry; None: it is a duplicate.

        Raises `NotPrimary` if the sender is not the primary any more.
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

    # -- status for the master -------------------------------------------------------------------------------

    def filled(self) -> list[tuple[int, int, str]]:
        """Migrated buckets that have arrived: bucket, server, incarnation."""
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
