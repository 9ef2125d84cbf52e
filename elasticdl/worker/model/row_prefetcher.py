"""Prefetches the rows of the next batch while the present one is computed.

The ids of a lookup are known only when a layer calls it. But most models look up their features, or some columns of
them: the ids of a lookup are compared with the features of the batch (`learn`), and where they were the same, those of
the next batch are expected to be the same too. A lookup gets prefetched rows only if they were pulled for exactly its
ids; otherwise it pulls them itself, and its ids are compared again. So results cannot be wrong, only faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.lookups import LookupResult
from elasticdl.ps.embedding.row_requests import RowSource
from elasticdl.ps.embedding.table import Ids
from elasticdl.ps.embedding.unique_ids import unique
from elasticdl.worker.model.background_exchange import Exchange

# Comparing costs something, and a model in which ids are computed will not be understood by trying again.
_TRIES = 8

# Features of a batch: whatever numbers it has, always in the same order.
Features = Callable[[Any], Sequence[Array]]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of a lookup's ids in the features of a batch: a feature, or `width` columns of it."""

    feature: int
    column: int = 0
    width: int = 0

    def ids(self, features: Sequence[Array]) -> Ids | None:
        if self.feature >= len(features):
            return None
        found = features[self.feature]
        if self.width:
            if found.ndim != 2 or found.shape[1] < self.column + self.width:
                return None
            found = found[:, self.column : self.column + self.width]
        return np.ascontiguousarray(found.reshape(-1), dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lookup:
    table: str
    ids: Ids


@dataclass(frozen=True, kw_only=True)
class _Fetched:
    lookup: _Lookup
    found: LookupResult


class RowsAhead:
    """Prefetched rows of one model. The computing thread does everything except the pull."""

    def __init__(self, source: RowSource, features: Features) -> None:
        self._source = source
        self._features = features
        self._thread = Exchange()
        # The place of every lookup in the last batch, in their order: its table, and where its ids were.
        self._places: list[tuple[str, Place | None]] = []
        self._seen: list[_Lookup] = []
        self._current: list[_Fetched] = []
        # The rows that are being pulled, and the batch they are for.
        self._next: list[_Fetched] = []
        self._next_batch: Any = None
        self._learned = 0
        self._surprised = False
        self.hits = self.misses = 0

    def begin(self, batch: Any, upcoming: Any) -> None:
        """This batch is about to be computed with, and that one, if it is known already, will be the next."""
        self._current, self._seen, self._surprised = [], [], False
        if self._next_batch is not None:
            self._wait()
            if self._next_batch is batch:
                self._current = self._next
            self._next, self._next_batch = [], None
        if upcoming is not None and any(place is not None for _, place in self._places):
            self._next_batch = upcoming
            self._thread.give(lambda: self._fetch(upcoming))

    def take(self, table: str, ids: Ids) -> LookupResult | None:
        lookup = _Lookup(table=table, ids=ids)
        self._seen.append(lookup)
        for fetched in self._current:
            other = fetched.lookup
            if other.table == table and len(other.ids) == len(ids) and np.array_equal(other.ids, ids):
                self.hits += 1
                return fetched.found
        self.misses += 1
        self._surprised = self._surprised or bool(self._current)
        return None

    def learn(self, batch: Any) -> None:
        """The batch is through. Compares, where the lookups were others than those that were foreseen."""
        same = [table for table, _ in self._places] == [one.table for one in self._seen]
        if (same and not self._surprised) or self._learned >= _TRIES:
            return
        self._learned += 1
        features = self._features(batch)
        self._places = [(one.table, find_place(one.ids, features)) for one in self._seen]

    def forget(self) -> None:
        """Discards prefetched rows of a model that was replaced."""
        self._wait()
        self._current, self._next, self._next_batch = [], [], None

    def close(self) -> None:
        self._thread.close()

    def _wait(self) -> None:
        try:
            self._thread.settle()
        except Exception:  # noqa: BLE001 - the lookup of the same rows raises the same
            self._next = []

    def _fetch(self, batch: Any) -> None:
        """Pulls the rows of all tables with one call, in the other thread."""
        features = self._features(batch)
        lookups = []
        for table, place in self._places:
            ids = place.ids(features) if place is not None else None
            if ids is not None:
                lookups.append(_Lookup(table=table, ids=ids))
        # A batch may be empty, where samples were left out.
        self._next = fetch(self._source, lookups) if lookups else []


def fetch(source: RowSource, lookups: Sequence[_Lookup]) -> list[_Fetched]:
    different = [unique(one.ids) for one in lookups]
    wanted: dict[str, list[Ids]] = {}
    for one, (ids, _) in zip(lookups, different, strict=True):
        wanted.setdefault(one.table, []).append(ids)
    together = {table: _together(parts) for table, parts in wanted.items()}
    rows = source.pull_rows({table: ids for table, (ids, _) in together.items()})
    parts = {table: iter(places) for table, (_, places) in together.items()}
    fetched = []
    for one, (ids, inverse) in zip(lookups, different, strict=True):
        place = next(parts[one.table])
        own = rows[one.table] if place is None else rows[one.table][place]
        fetched.append(_Fetched(lookup=one, found=LookupResult(ids=ids, inverse=inverse, rows=own)))
    return fetched


def _together(parts: Sequence[Ids]) -> tuple[Ids, list[Ids | None]]:
    """Several lookups of one table as one, and where in it each has its ids."""
    if len(parts) == 1:
        return parts[0], [None]
    ids, inverse = unique(np.concatenate(parts))
    ends = np.cumsum([len(part) for part in parts])
    return ids, list(np.split(inverse, ends[:-1]))


def find_place(ids: Ids, features: Sequence[Array]) -> Place | None:
    """Returns the place of these ids in the features, if they are there unchanged."""
    for number, feature in enumerate(features):
        if feature.size == len(ids) and np.array_equal(feature.reshape(-1), ids):
            return Place(feature=number)
    for number, feature in enumerate(features):
        if feature.ndim != 2 or not len(feature) or len(ids) % len(feature) or not len(ids):
            continue
        width = len(ids) // len(feature)
        wanted = ids.reshape(len(feature), width)
        for column in range(feature.shape[1] - width + 1):
            # Most differ in their first sample.
            if np.array_equal(feature[0, column : column + width], wanted[0]) and np.array_equal(
                feature[:, column : column + width], wanted
            ):
                return Place(feature=number, column=column, width=width)
    return None
