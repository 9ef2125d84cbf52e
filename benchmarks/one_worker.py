"""One worker in a job against the plain loop of its framework: samples per second, once both are under way.

The job is the whole of it: a command, a master with its journal, a worker that leases shards, reports every
batch and runs callbacks. The plain loop reads the same RecordIO file with the same reader and the same
parsing. For PyTorch the better of two plain loops counts: one that parses in the training process, one that
has a DataLoader parse in another.
"""

from __future__ import annotations

import statistics

from benchmarks import training
from benchmarks.report import Result, at_least

NAME = "one_worker"


def run(*, quick: bool, repeat: int) -> list[Result]:
    results = []
    with training.images(60 if quick else 600) as data:
        for framework in training.FRAMEWORKS:
            ours: list[training.Run] = []
            plain: dict[int, list[training.Run]] = {}
            for _ in range(repeat):
                ours.append(training.job(framework, data))
                for readers in (0, 1) if framework == "torch" else (0,):
                    plain.setdefault(readers, []).append(training.plain(framework, data, readers=readers))
            work = [statistics.median(r.work_per_sample for r in runs) * 1e6 for runs in (ours, plain[0])]
            result = Result(
                benchmark=NAME,
                case=framework,
                unit="samples/s",
                us=statistics.median(run.samples_per_second for run in ours),
                peer=max(statistics.median(r.samples_per_second for r in runs) for runs in plain.values()),
                note=f"processor time of a sample: {work[0]:.0f} µs, peer {work[1]:.0f} µs",
            )
            results.append(at_least(result, 0.95))
    return results
