"""Roles and outboxes of replication: decisions, without I/O.

A primary applies pushes in one order and replicates them in that order to the other servers with the bucket (its
backup, a server that it migrates to): one outbox for each. A worker gets its reply when they have acknowledged.

Invariants, and why they hold:

- No acknowledged push is lost. It is acknowledged when the backup has it. A backup with a newer map, in which the
  sender is no longer the primary, rejects the entry, so the sender acknowledges nothing. The same fences a sender that
  was replaced by another process under its number: the newest map names the valid incarnations.
- No push is applied twice. Every bucket knows the last batch of every worker, and keeps that when it is migrated.
- Replicas of a bucket do not differ. They apply the same entries in the same order from one sender. When the primary
  changes without a loss, the previous one brings all replicas up to date before the handover; after a loss there is one
  replica, and others are copied from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.core.array_bodies import Mask, mask_of, numbers, pack, unpack
from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap
from elasticdl.wire import ps_pb2


@dataclass(frozen=True, kw_only=True)
class Routes:
    """A map, with the addresses and incarnations of its servers, by their numbers.

    A server that is not among the incarnations, if there are any, has been replaced.
    """

    map: BucketMap
    addresses: Mapping[int, str] = field(default_factory=dict)
    incarnations: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OutboxEntry:
    """An entry that is not acknowledged yet: the message, and the arrays that belong to it."""

    entry: ps_pb2.Entry
    body: Sequence[memoryview] = ()


class Outbox:
    """The entries for one incarnation of another server, in order; kept until they are acknowledged."""

    def __init__(self, peer: int, incarnation: str) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self.acknowledged = 0
        self.last = 0
        # Parts of migrating buckets that are not acknowledged.
        self.migrations_in_flight = 0
        self._waiting: deque[OutboxEntry] = deque()

    def add(self, entry: ps_pb2.Entry, body: Sequence[memoryview] = ()) -> int:
        self.last += 1
        entry.position = self.last
        self._waiting.append(OutboxEntry(entry=entry, body=body))
        self.migrations_in_flight += entry.HasField("fill")
        return self.last

    def acknowledge(self, position: int) -> None:
        """The receiver has everything up to this position."""
        self.acknowledged = max(self.acknowledged, position)
        while self._waiting and self._waiting[0].entry.position <= position:
            self.migrations_in_flight -= self._waiting.popleft().entry.HasField("fill")

    def after(self, position: int) -> OutboxEntry | None:
        """The entry to send after that position; None: there is none."""
        if not self._waiting or position >= self.last:
            return None
        index = position + 1 - self._waiting[0].entry.position
        return self._waiting[max(index, 0)]

    def prune(self, mask: Mask) -> None:
        """Limits the waiting entries to some buckets: the receiver would reject the others."""
        for waiting in self._waiting:
            waiting.entry.buckets = pack(unpack(waiting.entry.buckets) & mask)

    def __len__(self) -> int:
        return len(self._waiting)


# Entries that must be acknowledged: by peer, the outbox and the position.
Ticket = dict[int, tuple[Outbox, int]]


@dataclass(frozen=True, kw_only=True)
class BucketCopy:
    """The part of a migrating bucket that is in the outbox."""

    peer: int
    incarnation: str
    # The position of its last part in the outbox.
    position: int
    part: int = 0
    parts: int = 1

    @property
    def complete(self) -> bool:
        return self.part + 1 == self.parts


@dataclass(frozen=True, kw_only=True)
class Served:
    """The buckets that a server is the active primary of. Immutable: may be read without the server's lock."""

    mask: Mask
    # By bucket: a number that stays the same while the bucket is served without a break.
    since: NDArray[np.int64]


class Roles:
    """The roles of one server in a map."""

    def __init__(self, number: int, incarnation: str = "") -> None:
        self.number = number
        self.incarnation = incarnation
        self.routes: Routes | None = None
        # Buckets that the previous primary has handed over to this server, and the version of its map then.
        self.taken: dict[int, int] = {}
        # Buckets that are migrated, with all their updates.
        self.copied: dict[int, BucketCopy] = {}
        # Since when: counted in times that it was worked out.
        self._served = Served(mask=np.ones(BUCKETS, np.bool_), since=np.zeros(BUCKETS, np.int64))
        self._worked_out = 0
        self._held: Mask = np.ones(BUCKETS, np.bool_)
        self._targets: dict[int, Mask] = {}

    @property
    def map(self) -> BucketMap | None:
        return self.routes.map if self.routes else None

    @property
    def version(self) -> int:
        return self.routes.map.version if self.routes else 0

    @property
    def serving(self) -> Mask:
        """The buckets that this server is the active primary of."""
        return self._served.mask

    @property
    def served(self) -> Served:
        """The same, and since when. Another object as soon as anything changes."""
        return self._served

    @property
    def held(self) -> Mask:
        """The buckets that the map places on this server, also in part."""
        return self._held

    @property
    def complete(self) -> Mask:
        """The buckets that are complete on this server."""
        current = self.map
        if current is None:
            return self.serving
        backed_up: Mask = np.array(current.backup) == self.number
        return self.serving | backed_up

    @property
    def targets(self) -> Mapping[int, Mask]:
        """Returns, by server, the buckets whose updates are replicated to it."""
        return self._targets

    def update_routes(self, routes: Routes) -> None:
        """A newer map."""
        new = routes.map
        goes_on = _continued_migrations(self.map, new)
        self.routes = routes
        # A handover by a map that this server has not seen yet stays.
        self.taken = {
            bucket: version
            for bucket, version in self.taken.items()
            if version > new.version or (new.primary[bucket] == self.number and bucket in new.handover)
        }
        self.copied = {
            bucket: copy
            for bucket, copy in self.copied.items()
            if new.primary[bucket] == self.number
            and (copy.peer == new.backup[bucket] or copy.peer == goes_on.get(bucket, NO_SERVER))
            and routes.incarnations.get(copy.peer, copy.incarnation) == copy.incarnation
        }
        self._work_out()

    def take(self, mask: Mask, version: int) -> None:
        self.taken |= dict.fromkeys(numbers(mask), version)
        if self.routes is not None:
            self._work_out()

    def copy(self, bucket: int, copy: BucketCopy) -> None:
        """Notes a copied part. From the first part on, the updates of a migrating bucket are replicated, too."""
        self.copied[bucket] = copy
        self._targets.setdefault(copy.peer, np.zeros(BUCKETS, np.bool_))[bucket] = True

    def to_migrate(self) -> list[tuple[int, int, BucketCopy | None]]:
        """Buckets to migrate, the target server, and the progress; those that have begun first."""
        if self.routes is None:
            return []
        found = []
        for bucket, peer in sorted(self.routes.map.migrating.items()):
            copy = self.copied.get(bucket)
            begun = copy if copy is not None and copy.peer == peer else None
            if self.serving[bucket] and not (begun and begun.complete):
                found.append((bucket, peer, begun))
        return sorted(found, key=lambda each: each[2] is None)

    def to_hand_over(self) -> list[int]:
        """Buckets that this server has to hand over to their new primary."""
        if self.routes is None:
            return []
        return sorted(bucket for bucket, server in self.routes.map.handover.items() if server == self.number)

    def accepts_from(self, sender: int, incarnation: str, entry: ps_pb2.Entry, mask: Mask) -> bool:
        """Whether an entry of another server is to be applied: the sender must be the primary, and not fenced."""
        if self.routes is None or entry.version > self.version:
            return True
        known = self.routes.incarnations
        if known and known.get(sender) != incarnation:
            return False
        current = self.routes.map
        # Buckets that are not placed here do not matter.
        return all(
            current.primary[bucket] == sender
            or (current.handover.get(bucket) == sender and bucket not in self.taken)
            for bucket in numbers(mask & self._held)
        )

    def concerning(self, peer: int) -> Mask:
        """The buckets that are replicated to another server, or that it needs up to date for a handover."""
        mask = self._targets.get(peer, np.zeros(BUCKETS, np.bool_)).copy()
        if self.routes is not None:
            current = self.routes.map
            for bucket in self.to_hand_over():
                if peer in (current.primary[bucket], current.backup[bucket]):
                    mask[bucket] = True
        return mask

    def _work_out(self) -> None:
        assert self.routes is not None
        current = self.routes.map
        waiting = [bucket for bucket in current.handover if bucket not in self.taken]
        mine = np.array(current.primary) == self.number
        mine[waiting] = False
        self._worked_out += 1
        since = np.where(mine & self.serving, self._served.since, self._worked_out)
        self._served = Served(mask=mine, since=since)
        self._held = mask_of(current.held_by(self.number))
        backup = np.array(current.backup)
        targets: dict[int, Mask] = {}
        for peer in set(backup[mine].tolist()) - {NO_SERVER}:
            targets[peer] = mine & (backup == peer)
        for bucket, copy in self.copied.items():
            if mine[bucket]:
                targets.setdefault(copy.peer, np.zeros(BUCKETS, np.bool_))[bucket] = True
        self._targets = targets


def _continued_migrations(known: BucketMap | None, new: BucketMap) -> dict[int, int]:
    """Migrations that go on from one map to the other, and were not aborted by a map in between."""
    if known is None:
        return {}
    return {
        bucket: server
        for bucket, server in new.migrating.items()
        if known.migrating.get(bucket) == server
        and known.migrating_since.get(bucket) == new.migrating_since.get(bucket)
    }
