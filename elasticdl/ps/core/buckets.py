"""Buckets: the parts that everything on the parameter servers is cut into, and the map of who holds them.

There are many more buckets than servers and their number never changes, so a bucket is what moves when the number of
servers does. A row belongs to the bucket that the hash of its id says (`table.buckets_of`), a dense array to the one
that the sizes of all of them say (`dense_buckets`): no node stores either.

The map says which server is the primary of a bucket, to whom workers turn, and which one is its backup, that has
everything the primary has acknowledged. It is the master's: written down, numbered, and published to all. Two more
things are in it while buckets move:

    migrating   the primary copies the bucket to that server, and then keeps it up to date too. With the version of the
                map that it began with: a server that missed a map sees whether it was given up in between and
                begun again, and the server has forgotten what it had been given
    handover    the bucket's primary has changed and the one before lives: it brings the servers that hold the bucket up
                to date, and hands over; until it has, the new primary does not serve

What comes after a map is worked out in `placement_planner.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from elasticdl.wire import master_pb2

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A power of two. With 16 servers each still has 16, so that loads can be evened out to a few percent.
BUCKETS = 256
# In the place of a server's number.
NO_SERVER = -1


def bucket_bits(buckets: Iterable[int]) -> bytes:
    """Returns a set of buckets as `array_bodies.pack` writes a mask of them. The master runs without NumPy."""
    return sum(1 << bucket for bucket in set(buckets)).to_bytes(BUCKETS // 8, "little")


def buckets_in(bits: bytes) -> set[int]:
    """Returns what `bucket_bits` was given. No bits at all are all buckets."""
    number = int.from_bytes(bits, "little")
    return {bucket for bucket in range(BUCKETS) if not bits or number >> bucket & 1}


@dataclass(frozen=True, kw_only=True)
class BucketMap:
    """The placement of buckets. Of two maps of a generation the one with the higher version counts."""

    version: int
    # By bucket: the number of a server.
    primary: tuple[int, ...]
    backup: tuple[int, ...]
    # By bucket, for few of them.
    migrating: Mapping[int, int] = field(default_factory=dict)
    migrating_since: Mapping[int, int] = field(default_factory=dict)
    handover: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.primary) != BUCKETS or len(self.backup) != BUCKETS:
            raise ValueError(f"a map has {BUCKETS} buckets, not {len(self.primary)} and {len(self.backup)}")
        if min(self.primary) < 0 or min(self.backup) < NO_SERVER:
            raise ValueError("every bucket needs a primary")
        if any(one == other for one, other in zip(self.primary, self.backup, strict=True)):
            raise ValueError("a bucket's primary is its backup too")
        for bucket in (*self.migrating, *self.migrating_since, *self.handover):
            if not 0 <= bucket < BUCKETS:
                raise ValueError(f"there is no bucket {bucket}")
        for bucket, server in self.migrating.items():
            if server in (self.primary[bucket], self.backup[bucket]):
                raise ValueError(f"bucket {bucket} is on server {server} already")
        for bucket, server in self.handover.items():
            if server == self.primary[bucket]:
                raise ValueError(f"bucket {bucket} is handed over to its own primary")

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The primaries, as an array that cannot be changed."""
        # A master has maps, too, and never asks for this: it starts sooner without NumPy.
        import numpy as np

        found = np.array(self.primary, np.int64)
        found.setflags(write=False)
        return found

    @cached_property
    def asked(self) -> tuple[int, ...]:
        """The servers that workers turn to."""
        return tuple(sorted(set(self.primary)))

    @property
    def servers(self) -> frozenset[int]:
        """Returns all servers of the map: they hold buckets, receive some, or have yet to hand some over."""
        held = {*self.primary, *self.backup, *self.migrating.values(), *self.handover.values()}
        return frozenset(held - {NO_SERVER})

    def primaries_of(self, server: int) -> tuple[int, ...]:
        """The buckets that workers turn to this server for."""
        return tuple(bucket for bucket, owner in enumerate(self.primary) if owner == server)

    def copies_on(self, server: int) -> frozenset[int]:
        """The buckets that a server is to have all of: as their primary, at the latest when it is handed them, or as
        their backup.
        """
        roles = zip(self.primary, self.backup, strict=True)
        return frozenset(bucket for bucket, holders in enumerate(roles) if server in holders)

    def held_by(self, server: int) -> frozenset[int]:
        """The buckets that a server has reason to keep anything of."""
        held = set(self.copies_on(server))
        for moving in (self.migrating, self.handover):
            held.update(bucket for bucket, mover in moving.items() if mover == server)
        return frozenset(held)

    def to_wire(self) -> master_pb2.BucketMap:
        return master_pb2.BucketMap(
            version=self.version,
            primary=self.primary,
            backup=self.backup,
            filling=self.migrating,
            filling_since=self.migrating_since,
            handover=self.handover,
        )

    @classmethod
    def from_wire(cls, message: master_pb2.BucketMap) -> BucketMap:
        """Raises `ValueError` if the message makes no map."""
        return cls(
            version=message.version,
            primary=tuple(message.primary),
            backup=tuple(message.backup),
            migrating=dict(message.filling),
            migrating_since=dict(message.filling_since),
            handover=dict(message.handover),
        )


def first_map(servers: Sequence[int] | int, *, replicas: int = 2, version: int = 1) -> BucketMap:
    """Equal ranges of buckets for all servers, each backed up by the next one; the last by the first."""
    numbers = list(range(servers)) if isinstance(servers, int) else sorted(servers)
    if not numbers or len(numbers) > BUCKETS:
        raise ValueError(f"from 1 to {BUCKETS} parameter servers, not {len(numbers)}")
    places = [bucket * len(numbers) // BUCKETS for bucket in range(BUCKETS)]
    backed_up = replicas > 1 and len(numbers) > 1
    return BucketMap(
        version=version,
        primary=tuple(numbers[place] for place in places),
        backup=tuple(numbers[(place + 1) % len(numbers)] if backed_up else NO_SERVER for place in places),
    )


def dense_buckets(sizes: Mapping[str, int]) -> dict[str, int]:
    """The bucket of each array, given the bytes of each.

    The largest first, names settle ties: each into the half of all buckets that has fewer bytes yet, there into the
    half of these that has, and so on. So however many servers share the buckets in equal ranges, each has about as
    much.
    """
    # The halves of place n are at 2n and 2n + 1; all buckets together are at 1, and single ones from BUCKETS on.
    held = [0] * (2 * BUCKETS)
    found = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        place = 1
        while place < BUCKETS:
            place = min(2 * place, 2 * place + 1, key=held.__getitem__)
            # One without numbers is something, too: many of them are spread as others are.
            held[place] += max(1, sizes[name])
        found[name] = place - BUCKETS
    return found
