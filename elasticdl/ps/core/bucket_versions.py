"""The number of updates of a call's buckets: the smallest, and the buckets with more.

Every bucket has a count of its own, since buckets move: two that meet on one server may have had different numbers of
updates for good, as a worker that dies in the middle of a push leaves them. A gradient is as old as the number of
updates that its bucket has had since it was pulled, wherever that was. Nearly always all buckets of a call have had
equally many, and that is all that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.core.array_bodies import Mask, pack, unpack
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.wire import ps_pb2

# The version of values that were never pulled.
UNKNOWN = -1

# By the number of the bucket.
Versions = NDArray[np.int64]

# Buckets, and how many updates they had had.
Newer = Sequence[tuple[Mask, int]]

NOTHING_PULLED: Versions = np.full(BUCKETS, UNKNOWN, np.int64)
NOTHING_PULLED.flags.writeable = False


def within(versions: Versions, mask: Mask) -> tuple[int, Newer]:
    """Returns the smallest number of updates of some buckets, and those with more."""
    some = versions[mask]
    fewest = int(some.min())
    if fewest == some.max():
        return fewest, ()
    return fewest, [(mask & (versions == each), int(each)) for each in np.unique(some)[1:]]


def write_down(versions: Versions, mask: Mask, version: int, newer: Newer) -> None:
    """Stores the versions of some buckets from a call."""
    versions[mask] = version
    for theirs, each in newer:
        versions[mask & theirs] = each


def to_wire(newer: Newer) -> list[ps_pb2.BucketVersion]:
    return [ps_pb2.BucketVersion(buckets=pack(mask), version=version) for mask, version in newer]


def of_wire(newer: Iterable[ps_pb2.BucketVersion]) -> Newer:
    """Raises `ValueError` if these are not the buckets that there are."""
    return [(unpack(each.buckets), each.version) for each in newer]
