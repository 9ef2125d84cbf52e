"""Finds the ids of a table that are pulled most.

Workers pull each id of a batch once, so no id is a noticeable share of the pulled ids, however hot it is: a hot id is
one that is in nearly every pull. So some pulls are sampled, and the ids in most of them are found. Sketches made for
streams (space-saving, say) would need as many counters as a pull has ids, and sort them all the time. Instead there is
an array of slots, an id has one slot by its hash, and the ids of a slot vote for it: each sampled pull with the
present owner is a vote for it, each with another id of the slot is a vote against it. An id that is in most pulls keeps
its slot. The price: of two hot ids that share a slot, only one is found.

That is a few passes of NumPy over the ids, and costs about as much as the lookup of the rows. After the first few, one
pull of `PULLS_PER_LOOK` is sampled, so that the cost stays far below a hundredth of a pull. No thread waits: while one
thread samples, others skip it.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.embedding.table import Ids

PULLS_PER_LOOK = 1024
# The first looks come sooner: a short job shall see something too.
EARLY_LOOKS = 16
PULLS_PER_EARLY_LOOK = 8
# Places for each id of a pull, so that few share one; and how many there are at least and at most (24 bytes each).
_PLACES_PER_ID = 4
_FEWEST_PLACES = 1 << 10
_MOST_PLACES = 1 << 18
# After so many looks all counts are halved: what was hot long ago is not forever.
_MEMORY = 512
# In so many pulls of all an id is that is called hot; and so often one may be called so that is not.
_LEAST_SHARE = 0.1
_ERROR = 0.05
# The number of ids that are reported.
_REPORTED = 10
# Odd, with bits all over: multiplied by it, ids that lie side by side are far apart.
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, kw_only=True)
class HotId:
    id: int
    # In which part of the pulls it is, about.
    share: float


class HotIds:
    """The hot ids of one table on one server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._make(_FEWEST_PLACES)
        self._looks = 0
        # One of so many ids of a pull was looked at, in the last one.
        self._every = 1
        # The last result, if no ids were sampled since.
        self._top: list[HotId] | None = None

    def _make(self, places: int) -> None:
        self._ids: Ids = np.zeros(places, np.int64)
        # A place without votes is free.
        self._votes: NDArray[np.int64] = np.zeros(places, np.int64)
        self._counts: NDArray[np.int64] = np.zeros(places, np.int64)
        self._shift = np.uint64(64 - (places.bit_length() - 1))

    def look(self, ids: Ids) -> None:
        """Notes the ids of a pull, which are all different."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._note(ids)
        finally:
            self._lock.release()

    def _note(self, ids: Ids) -> None:
        # A very large pull is sampled, differently each time; each sampled id counts for several.
        every = -(-_PLACES_PER_ID * len(ids) // _MOST_PLACES) or 1
        self._every = every
        seen = ids[self._looks % every :: every]
        while _PLACES_PER_ID * len(seen) > len(self._ids):
            self._grow()
        places = self._places(seen)
        known = (self._ids[places] == seen) & (self._votes[places] > 0)
        sitting = places[known]
        self._votes[sitting] += every
        self._counts[sitting] += every
        unknown, wanted = seen[~known], places[~known]
        free = self._votes[wanted] <= 0
        self._votes[wanted[~free]] -= 1
        self._sit(wanted[free], unknown[free], every, every)
        self._looks += 1
        self._top = None
        if self._looks >= _MEMORY:
            self._looks //= 2
            self._votes //= 2
            self._counts //= 2

    def _places(self, ids: Ids) -> NDArray[np.int64]:
        mixed: NDArray[np.int64] = ((ids.view(np.uint64) * _MIX) >> self._shift).view(np.int64)
        return mixed

    def _sit(self, places: NDArray[np.int64], ids: Ids, votes: int | Ids, counts: int | Ids) -> None:
        # Where several want one place, the last gets it, of each of these arrays.
        self._ids[places] = ids
        self._votes[places] = votes
        self._counts[places] = counts

    def _grow(self) -> None:
        taken = self._votes > 0
        ids, votes, counts = self._ids[taken], self._votes[taken], self._counts[taken]
        self._make(2 * len(self._ids))
        self._sit(self._places(ids), ids, votes, counts)

    def top(self) -> list[HotId]:
        """The hottest first. None, as long as there is too little to tell from."""
        with self._lock:
            if self._top is None:
                self._top = self._find() if self._looks else []
            return self._top

    def _find(self) -> list[HotId]:
        counts = np.where(self._votes > 0, self._counts, 0)
        # Seen once is not hot, however few looks there were.
        least = max(2, int(np.partition(counts, -_REPORTED)[-_REPORTED]))
        hottest = np.flatnonzero(counts >= least)
        order = hottest[np.lexsort((self._ids[hottest], -counts[hottest]))][:_REPORTED]
        found = [
            HotId(id=int(self._ids[place]), share=min(1.0, float(counts[place]) / self._looks))
            for place in order
        ]
        among = int(np.count_nonzero(counts))
        looks = self._looks / self._every
        return [one for one in found if _is_more_than_chance(one.share, looks, among=among)]


def _is_more_than_chance(share: float, looks: float, *, among: int) -> bool:
    """Whether an id in that share of so many pulls is a hot one, and not one of very many that had to be in some.

    Chernoff's bound: where the true share is p, or less, a share s is seen in n pulls with a probability of at most
    exp(-n·d), d = s·ln(s/p) + (1 - s)·ln((1 - s)/(1 - p)); for one of m ids, m times that.
    """
    if share <= _LEAST_SHARE:
        return False
    distance = share * math.log(share / _LEAST_SHARE)
    if share < 1:
        distance += (1 - share) * math.log((1 - share) / (1 - _LEAST_SHARE))
    return looks * distance > math.log(among / _ERROR)
