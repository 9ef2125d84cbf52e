"""DeepFM on parameter servers, ours and those of others: samples per second of the same model on the same data.

13 numbers and 26 categories, 10⁷ ids, rows of 16 numbers, batches of 4096; *full* with layers of 400, 400 and 400
units, *light* with 64 and 32, where communication is what counts. Every side is a set of real processes, long under
way, and they are timed in turns. Where a side can be arranged in several ways on two cores (workers, threads), all are
tried, and the best counts, on both sides. All have the data in mapped memory (`clicks.py`), and every loss has to fall.
A peer that cannot be installed on this machine is reported, and the others are measured all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.report import Result


def run(*, quick: bool, repeat: int) -> Iterator[Result]:
    # Every program of the sides imports this package, and needs nothing of what measures them.
    from benchmarks.parameter_servers import comparisons

    return comparisons.run(quick=quick, repeat=repeat)
