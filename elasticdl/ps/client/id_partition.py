"""Ids of a table, cut by the servers that their rows are on: which of them goes where, without moving them if possible.

Different ids come from `duplicates.unique` in the order of their buckets, and a server has whole ranges of buckets:
then what goes to a server is a few slices. Ids in any other order are sorted first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.core.buckets import BUCKETS, BucketMap
from elasticdl.ps.embedding.table import Ids, buckets_of

# Beyond that it is cheaper to move the ids than to send them in so many pieces.
_MOST_PIECES = 64


@dataclass(frozen=True, kw_only=True)
class IdPartition:
    # As they are to be sent, and where each of them stands among those given; None: at the same place.
    ids: Ids
    order: NDArray[np.intp] | None
    # By server.
    pieces: dict[int, list[slice]]


def partition_ids(ids: Ids, owners: NDArray[np.int64], wanted: Mask) -> IdPartition:
    """The ids of some buckets, by the servers that own these."""
    servers = np.unique(owners[wanted])
    if len(servers) == 1 and wanted.all():
        return IdPartition(ids=ids, order=None, pieces={int(servers[0]): [slice(0, len(ids))]})
    # Ids that are not wanted go to no server.
    by_bucket = np.where(wanted, owners, -1).astype(np.int16)
    owner = by_bucket[buckets_of(ids, BUCKETS)]
    order = None
    bounds = _bounds(owner)
    if len(bounds) > _MOST_PIECES:
        order = np.argsort(owner, kind="stable")
        ids, owner = ids[order], owner[order]
        bounds = _bounds(owner)
    pieces: dict[int, list[slice]] = {}
    for start, end in itertools.pairwise(bounds):
        server = int(owner[start])
        if server >= 0:
            pieces.setdefault(server, []).append(slice(start, end))
    return IdPartition(ids=ids, order=order, pieces=pieces)


class IdPartitions:
    """The ids of some tables, cut once for all servers that are asked."""

    def __init__(self, ids: Mapping[str, Ids]) -> None:
        self._ids = ids
        self._known: tuple[BucketMap | None, dict[str, IdPartition]] = (None, {})

    def of(
        self, current: BucketMap, server: int, mask: Mask
    ) -> Iterator[tuple[str, IdPartition, list[slice]]]:
        """Yields, by table, the ids of some buckets that a server is the primary of. Tables without any are omitted."""
        owners = current.owners
        whole = bool((mask == (owners == server)).all())
        if whole and self._known[0] is not current:
            everything = np.ones(BUCKETS, np.bool_)
            self._known = (
                current,
                {name: partition_ids(ids, owners, everything) for name, ids in self._ids.items()},
            )
        for name, ids in self._ids.items():
            # Some of its buckets alone are for a repetition, which is rare.
            divided = self._known[1][name] if whole else partition_ids(ids, owners, mask)
            pieces = divided.pieces.get(server, [])
            if pieces:
                yield name, divided, pieces


def _bounds(owner: NDArray[np.int16]) -> list[int]:
    if not len(owner):
        return [0]
    return [0, *(np.flatnonzero(owner[1:] != owner[:-1]) + 1).tolist(), len(owner)]
