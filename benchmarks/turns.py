"""Times several sides in turns: while one is timed, the others are suspended (SIGSTOP). All are in steady state.

So all meet the same state of the machine, which changes every minute on a shared host, and none is timed while it
starts.
"""

from __future__ import annotations

import abc
import contextlib
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psutil

from benchmarks.processes import DEADLINE, Stuck
from benchmarks.report import Result


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The speed of one side in one turn."""

    per_second: float
    # Processor seconds per counted unit.
    work: float


class Side(abc.ABC):
    """One of the compared sides, with all its processes."""

    def __init__(self, roots: list[psutil.Process]) -> None:
        self._roots = roots
        self._processes: list[psutil.Process] = []

    @abc.abstractmethod
    def under_way(self) -> bool:
        """Whether the side has reached its steady state."""

    @abc.abstractmethod
    def last_output(self) -> str:
        """The output, for an error message if the side does not reach its steady state."""

    def processes(self) -> list[psutil.Process]:
        """All processes of the side, parents before their children."""
        found = []
        for root in self._roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [root, *root.children(recursive=True)]
        return found

    def wait_until_under_way(self) -> None:
        end = time.monotonic() + DEADLINE
        while not self.under_way():
            if time.monotonic() > end or any(root.status() == psutil.STATUS_ZOMBIE for root in self._roots):
                raise Stuck(self.last_output())
            # Polled rarely: polling uses the machine.
            time.sleep(0.2)
        self._processes = self.processes()

    def halt(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def work(self) -> float:
        """The processor time of all its processes so far."""
        work = 0.0
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                work += times.user + times.system
        return work

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


_Side = TypeVar("_Side", bound=Side)
_Found = TypeVar("_Found")


def take_turns(
    sides: Sequence[_Side], measure: Callable[[_Side], _Found], *, rounds: int
) -> dict[_Side, list[_Found]]:
    """Returns the speeds of each side, round by round. `measure` resumes its side, and suspends it again."""
    for side in sides:
        side.wait_until_under_way()
    for side in sides:
        side.halt()
    found: dict[_Side, list[_Found]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 else reversed(sides):
            found[side].append(measure(side))
    return found


def compared(
    us: Sequence[Speed],
    peer: Sequence[Speed],
    *,
    benchmark: str,
    case: str,
    unit: str,
    at_least: float,
    work_of: str,
) -> Result:
    """Returns the result of two sides in the same rounds: the median of the rounds' ratios."""
    ratio = statistics.median(a.per_second / b.per_second for a, b in zip(us, peer, strict=True))
    work = [f"{1e6 * statistics.median(speed.work for speed in speeds):,.0f} µs" for speeds in (us, peer)]
    return Result(
        benchmark=benchmark,
        case=case,
        unit=unit,
        us=statistics.median(speed.per_second for speed in us),
        peer=statistics.median(speed.per_second for speed in peer),
        compared=f"{ratio:.3g}×",
        target=f"≥ {at_least:g}×",
        passed=ratio >= at_least,
        note=f"the median of {len(us)} rounds' ratios; processor time of a {work_of}: {work[0]}, peer {work[1]}",
    )


@contextlib.contextmanager
def ended(side: _Side) -> Iterator[_Side]:
    """Resumes all processes at the end: a suspended process could not exit."""
    try:
        yield side
    finally:
        processes = side.processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)
