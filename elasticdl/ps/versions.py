"""How many updates the buckets of a call had had, as calls tell it: the fewest, and which buckets had had more.

Every bucket has a count of its own, since buckets move: two that meet on one server may have had different numbers of
updates for good, as a worker that dies in the middle of a push leaves them. A gradient is as old as the number of
updates that its bucket has had since it was pulled, wherever that was. Nearly always all buckets of a call have had
equally many, and that is all that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.bodies import Mask, numbers, pack, unpack
from elasticdl.ps.buckets import BUCKETS
from elasticdl.wire import ps_pb2

# Of what was never pulled.
UNKNOWN = -1

# Buckets, and how many updates they had had.
Newer = Sequence[tuple[Mask, int]]


def by_bucket(versions: Mapping[int, int]) -> NDArray[np.int64]:
    """By the numbers of all buckets."""
    found = np.full(BUCKETS, UNKNOWN, np.int64)
    found[list(versions)] = list(versions.values())
    return found


def within(versions: NDArray[np.int64], mask: Mask) -> tuple[int, Newer]:
    """Of some buckets: the fewest updates, and those with more."""
    fewest, *more = np.unique(versions[mask]).tolist()
    return fewest, [(mask & (versions == each), each) for each in more]


def told(mask: Mask, version: int, newer: Newer) -> dict[int, int]:
    """By bucket, for some that a call was about."""
    found = dict.fromkeys(numbers(mask), version)
    for theirs, each in newer:
        found |= dict.fromkeys(numbers(mask & theirs), each)
    return found


def to_wire(newer: Newer) -> list[ps_pb2.BucketVersion]:
    return [ps_pb2.BucketVersion(buckets=pack(mask), version=version) for mask, version in newer]


def of_wire(newer: Iterable[ps_pb2.BucketVersion]) -> Newer:
    """Raises `ValueError` if these are not the buckets that there are."""
    return [(unpack(each.buckets), each.version) for each in newer]
