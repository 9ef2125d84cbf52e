"""One worker in a job against the plain loop of its framework: samples per second, once both are under way.

The job is the whole of it: a command, a master with its journal, a worker that leases shards, reports every
batch and runs callbacks. The plain loop reads the same RecordIO file with the same reader and the same
parsing. For PyTorch the better of two plain loops counts: one that parses in the training process, one that
has a DataLoader parse in another.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import training
from benchmarks.report import Result

NAME = "one_worker"
TARGET = 0.95


def run(*, quick: bool, repeat: int) -> list[Result]:
    results = []
    with training.images(60 if quick else 300) as data:
        for framework in training.FRAMEWORKS:
            rounds = [_round(framework, data, ours_first=bool(number % 2)) for number in range(2 * repeat)]
            # Which plain loop is the better one is asked of all rounds; what it does against us, of each: a machine
            # that is slower for a minute is so for both.
            best = max(rounds[0].plain, key=lambda readers: median(r.plain[readers] for r in rounds))
            ratio = statistics.median(
                r.ours.samples_per_second / r.plain[best].samples_per_second for r in rounds
            )
            work = [
                statistics.median(run.work_per_sample for run in runs) * 1e6
                for runs in ([r.ours for r in rounds], [r.plain[0] for r in rounds])
            ]
            result = Result(
                benchmark=NAME,
                case=framework,
                unit="samples/s",
                us=median(r.ours for r in rounds),
                peer=median(r.plain[best] for r in rounds),
                compared=f"{ratio:.3g}×",
                target=f"≥ {TARGET:g}×",
                passed=ratio >= TARGET,
                note=f"the median of {len(rounds)} rounds' ratios; processor time of a sample: {work[0]:.0f} µs, "
                f"peer {work[1]:.0f} µs",
            )
            results.append(result)
    return results


@dataclass(frozen=True, kw_only=True)
class Round:
    ours: training.Run
    # By the number of processes that read for it.
    plain: dict[int, training.Run]


def _round(framework: training.Framework, data: Path, *, ours_first: bool) -> Round:
    readers = (0, 1) if framework == "torch" else (0,)
    ours = training.job(framework, data) if ours_first else None
    plain = {number: training.plain(framework, data, readers=number) for number in readers}
    return Round(ours=ours or training.job(framework, data), plain=plain)


def median(runs: Iterable[training.Run]) -> float:
    return statistics.median(run.samples_per_second for run in runs)
