"""The pause of workers while buckets migrate: the longest gap between two batches of any worker.

It is measured from the command that changes the number of servers until every bucket is in its place, for two changes.
Two workers train the light model on two servers; a third server joins, gets its buckets, and leaves. The longest gap in
a period of the same length before is reported too. The new server starts on the same cores, as it does for users.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.parameter_servers import progress, sides
from benchmarks.processes import ROOT, elasticdl, wait_until
from benchmarks.report import Result, at_most_more
from elasticdl.catalog.local.master_client import current_status
from elasticdl.jobs.job_store import JobStore

_SECONDS = 1.0
_JOB = "benchmark"


@dataclass(frozen=True, kw_only=True)
class Move:
    longest: float
    longest_before: float
    # From the command to the end of the last migration.
    seconds: float


def measure(benchmark: str, setting: sides.Setting, *, rounds: int) -> list[Result]:
    found: dict[str, list[Move]] = {"2 to 3": [], "3 to 2": []}
    with sides.ours(setting, workers=2, threads=1, servers=2) as side:
        side.wait_until_under_way()
        for _ in range(rounds):
            found["2 to 3"].append(_move(side, 3))
            found["3 to 2"].append(_move(side, 2))
        side.check_learning()
    return [_summary(benchmark, case, moves) for case, moves in found.items()]


def _summary(benchmark: str, case: str, moves: list[Move]) -> Result:
    """Returns the longest pause of several repetitions."""
    result = Result(
        benchmark=benchmark,
        case=f"longest pause of a worker, {case} servers",
        unit="s",
        us=max(move.longest for move in moves),
        note=f"before that {max(move.longest_before for move in moves):.2g} s; "
        f"it takes {statistics.median(move.seconds for move in moves):.1f} s until all buckets have migrated",
    )
    return at_most_more(result, _SECONDS)


def _move(side: sides.Trainers, servers: int) -> Move:
    began = time.monotonic()
    command = elasticdl("jobs", "scale", _JOB, f"--num_ps={servers}")
    environment = {**os.environ, "ELASTICDL_HOME": str(side.home)}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    wait_until(lambda: _is_settled(side, servers), f"buckets are on {servers} servers", every=0.2)
    over = time.monotonic()
    batches = side.batches()
    return Move(
        longest=_longest_gap(batches, began, over),
        longest_before=_longest_gap(batches, began - (over - began), began),
        seconds=over - began,
    )


def _is_settled(side: sides.Trainers, servers: int) -> bool:
    buckets = current_status(JobStore(side.home).get(_JOB)).buckets
    if buckets is None or len(buckets.by_server) != servers:
        return False
    return not buckets.is_migrating and not buckets.without_backup


def _longest_gap(batches: Sequence[Sequence[progress.Batch]], begin: float, end: float) -> float:
    """Returns the longest gap of any worker. A gap that is still open at the end counts up to the end."""
    longest = 0.0
    for each in batches:
        times = [batch.seconds for batch in each]
        gaps = [late - early for early, late in itertools.pairwise([*times, end]) if begin < late <= end]
        longest = max(longest, *gaps, 0.0)
    return longest
