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
            ours: list[float] = []
            plain: dict[int, list[float]] = {}
            for _ in range(repeat):
                ours.append(training.job(framework, data).samples_per_second())
                for readers in (0, 1) if framework == "torch" else (0,):
                    found = training.plain(framework, data, readers=readers)
                    plain.setdefault(readers, []).append(found.samples_per_second())
            result = Result(
                benchmark=NAME,
                case=framework,
                unit="samples/s",
                us=statistics.median(ours),
                peer=max(statistics.median(rates) for rates in plain.values()),
            )
            results.append(at_least(result, 0.95))
    return results
