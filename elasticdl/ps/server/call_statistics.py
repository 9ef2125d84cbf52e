"""Statistics of the calls that a server answers: latencies, staleness, rows by table, hot ids.

Each thread has its own counters, which only it writes to: counting takes no lock and loses nothing. A report adds up
the counters of all threads. They count from the start of the process on, over all generations; rates are computed by
the reader of two reports. `PushCounters` is the exception: one generation's, under the server's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.histogram import Distribution
from elasticdl.ps.embedding.table import Ids
from elasticdl.ps.server.hot_ids import EARLY_LOOKS, PULLS_PER_EARLY_LOOK, PULLS_PER_LOOK, HotId, HotIds
from elasticdl.ps.storage.table_set import RowPart, count_by_bucket
from elasticdl.wire import ps_pb2

# Dense values, rows, gradients.
CALLS = ("pull", "pull_rows", "push")


class PushCounters:
    """Counts the pushes of one generation, by bucket where the master needs it to rebalance. Used under the lock."""

    # One push in so many is examined to see which buckets it loads.
    _SAMPLE_INTERVAL = 8

    def __init__(self) -> None:
        self.pushes = 0
        self.non_finite = 0
        self.loads = np.zeros(BUCKETS, np.int64)

    def add_push(self, rows: Mapping[str, RowPart]) -> None:
        if self.pushes % self._SAMPLE_INTERVAL == 0:
            self.loads += 1 + count_by_bucket(part.ids for part in rows.values())
        self.pushes += 1

    def add_non_finite(self) -> None:
        self.non_finite += 1


class TableStatistics:
    __slots__ = ("found", "pulled", "pushed", "refused")

    def __init__(self) -> None:
        # Ids that were asked for, those of them that had a row, those that gradients were applied to, and those that
        # would have got a row if there had been memory.
        self.pulled = 0
        self.found = 0
        self.pushed = 0
        self.refused = 0

    def merge(self, other: TableStatistics) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class ThreadStatistics:
    """The statistics of one thread."""

    def __init__(self) -> None:
        # In microseconds.
        self.calls = {kind: Distribution() for kind in CALLS}
        # The staleness of applied pushes: versions between the pull of the values and now.
        self.staleness = Distribution()
        # Pushes that were refused, because a number in them is none.
        self.not_finite = 0
        self.tables: dict[str, TableStatistics] = {}
        self._looks = 0
        self._pulls_to_look = PULLS_PER_EARLY_LOOK

    def table(self, name: str) -> TableStatistics:
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = TableStatistics()
        return found

    def looks(self) -> bool:
        """Whether the ids of this pull are to be looked at."""
        self._pulls_to_look -= 1
        if self._pulls_to_look > 0:
            return False
        self._looks += 1
        self._pulls_to_look = PULLS_PER_EARLY_LOOK if self._looks < EARLY_LOOKS else PULLS_PER_LOOK
        return True

    def merge(self, other: ThreadStatistics) -> None:
        for kind, took in self.calls.items():
            took.merge(other.calls[kind])
        self.staleness.merge(other.staleness)
        self.not_finite += other.not_finite
        # A copy, since the other's thread may be adding to it.
        for name, table in dict(other.tables).items():
            self.table(name).merge(table)


class CallStatistics:
    """The statistics of all threads of a server."""

    def __init__(self) -> None:
        self._own = threading.local()
        # For new threads and for readers; not for counting threads.
        self._lock = threading.Lock()
        self._counting: list[tuple[threading.Thread, ThreadStatistics]] = []
        self._ended = ThreadStatistics()
        self._hot: dict[str, HotIds] = {}

    def of_thread(self) -> ThreadStatistics:
        """Returns the statistics of the calling thread."""
        found: ThreadStatistics | None = getattr(self._own, "statistics", None)
        if found is None:
            found = self._own.statistics = ThreadStatistics()
            with self._lock:
                # Connections come and go, also where no report is ever made.
                self._add_up_ended()
                self._counting.append((threading.current_thread(), found))
        return found

    def _add_up_ended(self) -> None:
        counting = []
        for thread, statistics in self._counting:
            if thread.is_alive():
                counting.append((thread, statistics))
            else:
                self._ended.merge(statistics)
        self._counting = counting

    def look(self, pulled: Sequence[tuple[str, Ids]]) -> None:
        """Samples the ids of a pull, to find hot ones."""
        for name, ids in pulled:
            # Two threads that make the first for one table make one: that is how dictionaries are.
            self._hot.setdefault(name, HotIds()).look(ids)

    def hot(self) -> Mapping[str, Sequence[HotId]]:
        return {name: ids.top() for name, ids in dict(self._hot).items()}

    def total(self) -> ThreadStatistics:
        with self._lock:
            self._add_up_ended()
            total = ThreadStatistics()
            for each in (self._ended, *(counted for _, counted in self._counting)):
                total.merge(each)
            return total


def report(
    statistics: CallStatistics, sizes: Mapping[str, tuple[int, int]], *, dense_bytes: int, seconds: float
) -> ps_pb2.Figures:
    """Everything there is to tell. `sizes`: rows and bytes of each table; `seconds` since the start."""
    total, hot = statistics.total(), statistics.hot()
    nothing = TableStatistics()
    return ps_pb2.Figures(
        seconds=seconds,
        calls=[
            ps_pb2.CallFigures(kind=kind, microseconds=_to_wire(took)) for kind, took in total.calls.items()
        ],
        staleness=_to_wire(total.staleness),
        dense_bytes=dense_bytes,
        not_finite=total.not_finite,
        tables=[
            ps_pb2.TableFigures(
                table=name,
                rows=rows,
                bytes=size,
                pulled=counted.pulled,
                found=counted.found,
                pushed=counted.pushed,
                refused=counted.refused,
                hot=[ps_pb2.HotId(id=one.id, share=one.share) for one in hot.get(name, ())],
            )
            for name, (rows, size) in sizes.items()
            for counted in (total.tables.get(name, nothing),)
        ],
    )


def _to_wire(distribution: Distribution) -> ps_pb2.Distribution:
    found = distribution.found()
    return ps_pb2.Distribution(
        classes=found.keys(), counts=found.values(), sum=distribution.sum, largest=distribution.largest
    )
