"""What a server counts of the calls that it answers, so that it can be looked at from outside.

Each thread counts for itself, in plain numbers that nobody else writes to: counting takes no lock, and no count is
lost. Whoever wants to know adds up what the threads have. Everything is counted from the start of the process on, over
all generations; how much it is a second, is for those to say who see two reports.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from elasticdl.ps.core.histogram import Distribution
from elasticdl.ps.embedding.table import Ids
from elasticdl.ps.server.hot_ids import EARLY_LOOKS, PULLS_PER_EARLY_LOOK, PULLS_PER_LOOK, HotId, HotIds
from elasticdl.wire import ps_pb2

# Dense values, rows, gradients.
CALLS = ("pull", "pull_rows", "push")


class TableTally:
    __slots__ = ("found", "pulled", "pushed", "refused")

    def __init__(self) -> None:
        # Ids that were asked for, those of them that had a row, those that gradients were applied to, and those that
        # would have got a row if there had been memory.
        self.pulled = 0
        self.found = 0
        self.pushed = 0
        self.refused = 0

    def merge(self, other: TableTally) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Tally:
    """Of one thread."""

    def __init__(self) -> None:
        # In microseconds.
        self.calls = {kind: Distribution() for kind in CALLS}
        # Of pushes that were applied: versions between the pull of the values and now.
        self.staleness = Distribution()
        # Pushes that were refused, because a number in them is none.
        self.not_finite = 0
        self.tables: dict[str, TableTally] = {}
        self._looks = 0
        self._pulls_to_look = PULLS_PER_EARLY_LOOK

    def table(self, name: str) -> TableTally:
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = TableTally()
        return found

    def looks(self) -> bool:
        """Whether the ids of this pull are to be looked at."""
        self._pulls_to_look -= 1
        if self._pulls_to_look > 0:
            return False
        self._looks += 1
        self._pulls_to_look = PULLS_PER_EARLY_LOOK if self._looks < EARLY_LOOKS else PULLS_PER_LOOK
        return True

    def merge(self, other: Tally) -> None:
        for kind, took in self.calls.items():
            took.merge(other.calls[kind])
        self.staleness.merge(other.staleness)
        self.not_finite += other.not_finite
        # A copy, since the other's thread may be adding to it.
        for name, table in dict(other.tables).items():
            self.table(name).merge(table)


class Tallies:
    """Of all threads of a server."""

    def __init__(self) -> None:
        self._own = threading.local()
        # For those who begin and those who ask; not for those who count.
        self._lock = threading.Lock()
        self._counting: list[tuple[threading.Thread, Tally]] = []
        self._ended = Tally()
        self._hot: dict[str, HotIds] = {}

    def mine(self) -> Tally:
        """That of the calling thread."""
        found: Tally | None = getattr(self._own, "tally", None)
        if found is None:
            found = self._own.tally = Tally()
            with self._lock:
                # Connections come and go, also where nobody ever asks.
                self._add_up_ended()
                self._counting.append((threading.current_thread(), found))
        return found

    def _add_up_ended(self) -> None:
        counting = []
        for thread, tally in self._counting:
            if thread.is_alive():
                counting.append((thread, tally))
            else:
                self._ended.merge(tally)
        self._counting = counting

    def look(self, pulled: Sequence[tuple[str, Ids]]) -> None:
        """At the ids of a pull, to see which are hot."""
        for name, ids in pulled:
            # Two threads that make the first for one table make one: that is how dictionaries are.
            self._hot.setdefault(name, HotIds()).look(ids)

    def hot(self) -> Mapping[str, Sequence[HotId]]:
        return {name: ids.top() for name, ids in dict(self._hot).items()}

    def total(self) -> Tally:
        with self._lock:
            self._add_up_ended()
            total = Tally()
            for tally in (self._ended, *(tally for _, tally in self._counting)):
                total.merge(tally)
            return total


def report(
    tallies: Tallies, sizes: Mapping[str, tuple[int, int]], *, dense_bytes: int, seconds: float
) -> ps_pb2.Figures:
    """Everything there is to tell. `sizes`: rows and bytes of each table; `seconds` since the start."""
    total, hot = tallies.total(), tallies.hot()
    nothing = TableTally()
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
