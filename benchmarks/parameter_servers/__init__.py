"""DeepFM on parameter servers, ours and those of peers: samples per second of the same model on the same data.

13 numbers and 26 categories, 10⁷ ids, rows of 16 numbers, batches of 4096; *full* with layers of 400, 400 and 400
units, *light* with 64 and 32, where communication dominates. Every side is a set of real processes in steady state, and
they are timed in turns. If a side can be arranged in several ways on two cores (workers, threads), all are tried, and
the fastest counts, for all sides. All have the data in mapped memory (`clicks.py`), and every loss must decrease. A
peer that cannot be installed on this machine is reported; the others are still measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.report import Result


def run(*, quick: bool, repeat: int) -> Iterator[Result]:
    # Every program of the sides imports this package, but not the measuring code.
    from benchmarks.parameter_servers import comparisons

    return comparisons.run(quick=quick, repeat=repeat)
