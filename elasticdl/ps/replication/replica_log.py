"""Who keeps which bucket up to date, and what is still to be told to whom: decisions, without I/O.

A primary carries out pushes in one order and tells those who have the bucket too (its backup, a server that is being
filled) in that order: an outbox for each of them. A worker gets its answer when they have acknowledged.

What must never happen, and why it does not:

- An acknowledged push is lost. It is acknowledged when the backup has it. A backup that has a newer map, in which the
  sender is not the bucket's primary any more, refuses what the sender tells: then the sender acknowledges nothing. The
  same holds for a sender that was given up and has been replaced by another process under its number: processes have
  incarnations, and the newest map comes with those that count.
- A push is applied twice. Every bucket knows the last batch of every worker, and takes this knowledge along.
- Two copies of a bucket differ. Both have had the same entries in the same order from one sender. Where the primary
  changes without a loss, the one before has brought everybody up to date before it hands over; where it was lost, there
  is one copy left, and others are filled anew.
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
    """A map, and where and who the servers in it are, by their numbers.

    Who is not among the incarnations, if there are any, has been given up.
    """

    map: BucketMap
    addresses: Mapping[int, str] = field(default_factory=dict)
    incarnations: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OutboxEntry:
    """An entry on its way: the message, and the numbers that belong to it."""

    entry: ps_pb2.Entry
    body: Sequence[memoryview] = ()


class Outbox:
    """What one server tells one incarnation of another, in order; kept until it is acknowledged."""

    def __init__(self, peer: int, incarnation: str) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self.acknowledged = 0
        self.last = 0
        # Parts of buckets among what is not acknowledged.
        self.fills = 0
        self._waiting: deque[OutboxEntry] = deque()

    def add(self, entry: ps_pb2.Entry, body: Sequence[memoryview] = ()) -> int:
        self.last += 1
        entry.position = self.last
        self._waiting.append(OutboxEntry(entry=entry, body=body))
        self.fills += entry.HasField("fill")
        return self.last

    def acknowledge(self, position: int) -> None:
        """It has everything up to there."""
        self.acknowledged = max(self.acknowledged, position)
        while self._waiting and self._waiting[0].entry.position <= position:
            self.fills -= self._waiting.popleft().entry.HasField("fill")

    def after(self, position: int) -> OutboxEntry | None:
        """The next entry to be told to who has been told that one."""
        if not self._waiting or position >= self.last:
            return None
        index = position + 1 - self._waiting[0].entry.position
        return self._waiting[max(index, 0)]

    def prune(self, mask: Mask) -> None:
        """Of what waits only some buckets still matter: the receiver may be right to refuse others."""
        for told in self._waiting:
            told.entry.buckets = pack(unpack(told.entry.buckets) & mask)

    def __len__(self) -> int:
        return len(self._waiting)


# Entries that must be acknowledged: by peer, the outbox and the position.
Ticket = dict[int, tuple[Outbox, int]]


@dataclass(frozen=True, kw_only=True)
class BucketCopy:
    """How much of a bucket is in the outbox to a server that is being filled."""

    peer: int
    incarnation: str
    # Where the last of it is there.
    position: int
    part: int = 0
    parts: int = 1

    @property
    def complete(self) -> bool:
        return self.part + 1 == self.parts


class Roles:
    """What a map says to one server."""

    def __init__(self, number: int, incarnation: str = "") -> None:
        self.number = number
        self.incarnation = incarnation
        self.routes: Routes | None = None
        # Buckets that the one before has handed over to this server, and the version of its map when it did.
        self.taken: dict[int, int] = {}
        # Buckets of which a server that is being filled is told.
        self.copied: dict[int, BucketCopy] = {}
        self._serving: Mask = np.ones(BUCKETS, np.bool_)
        # Since when it has been so without a break, counted in times that it was worked out.
        self._serving_since: NDArray[np.int64] = np.zeros(BUCKETS, np.int64)
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
        """The buckets that workers may turn to this server for. Another array as soon as anything changes."""
        return self._serving

    @property
    def serving_since(self) -> NDArray[np.int64]:
        """Of the buckets that are served: the same number as before, if they have been all the time."""
        return self._serving_since

    @property
    def held(self) -> Mask:
        """The buckets that this server has reason to keep anything of."""
        return self._held

    @property
    def complete(self) -> Mask:
        """The buckets that this server has all of."""
        current = self.map
        if current is None:
            return self._serving
        backed_up: Mask = np.array(current.backup) == self.number
        return self._serving | backed_up

    @property
    def targets(self) -> Mapping[int, Mask]:
        """Who has to be told of what happens to which of these buckets."""
        return self._targets

    def update_routes(self, routes: Routes) -> None:
        """A newer map."""
        new = routes.map
        goes_on = _fillings_that_go_on(self.map, new)
        self.routes = routes
        # One that is of a map that this server has not seen yet is for later.
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
        """From its first part on whoever is being filled has to be told what happens to a bucket."""
        self.copied[bucket] = copy
        self._targets.setdefault(copy.peer, np.zeros(BUCKETS, np.bool_))[bucket] = True

    def to_fill(self) -> list[tuple[int, int, BucketCopy | None]]:
        """Buckets that are to be copied, to whom, and how far that has come; those that have been begun first."""
        if self.routes is None:
            return []
        found = []
        for bucket, peer in sorted(self.routes.map.filling.items()):
            copy = self.copied.get(bucket)
            begun = copy if copy is not None and copy.peer == peer else None
            if self._serving[bucket] and not (begun and begun.complete):
                found.append((bucket, peer, begun))
        return sorted(found, key=lambda each: each[2] is None)

    def to_hand_over(self) -> list[int]:
        """Buckets that were this server's, and are another's as soon as it is told so."""
        if self.routes is None:
            return []
        return sorted(bucket for bucket, server in self.routes.map.handover.items() if server == self.number)

    def accepts_from(self, sender: int, incarnation: str, entry: ps_pb2.Entry, mask: Mask) -> bool:
        """Whether what another server says counts."""
        if self.routes is None or entry.version > self.version:
            return True
        known = self.routes.incarnations
        if known and known.get(sender) != incarnation:
            return False
        current = self.routes.map
        # What this server does not hold is none of its business.
        return all(
            current.primary[bucket] == sender
            or (current.handover.get(bucket) == sender and bucket not in self.taken)
            for bucket in numbers(mask & self._held)
        )

    def concerning(self, peer: int) -> Mask:
        """The buckets that another server has to be told of, or has to be up to date with for a handover."""
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
        self._serving_since = np.where(mine & self._serving, self._serving_since, self._worked_out)
        self._serving = mine
        self._held = mask_of(current.held_by(self.number))
        backup = np.array(current.backup)
        targets: dict[int, Mask] = {}
        for peer in set(backup[mine].tolist()) - {NO_SERVER}:
            targets[peer] = mine & (backup == peer)
        for bucket, copy in self.copied.items():
            if mine[bucket]:
                targets.setdefault(copy.peer, np.zeros(BUCKETS, np.bool_))[bucket] = True
        self._targets = targets


def _fillings_that_go_on(known: BucketMap | None, new: BucketMap) -> dict[int, int]:
    """Those that no map between these two has given up, as a map might that was never seen here."""
    if known is None:
        return {}
    return {
        bucket: server
        for bucket, server in new.filling.items()
        if known.filling.get(bucket) == server
        and known.filling_since.get(bucket) == new.filling_since.get(bucket)
    }
