"""From the command to the end of the first batch: `elasticdl train` against the plain script.

Both import their framework once and build the same model; the rest of the difference is ours: the command,
the master, the worker's way to its first shard.
"""

from __future__ import annotations

import statistics

from benchmarks import training
from benchmarks.report import Result, at_most_more

NAME = "first_batch"


def run(*, quick: bool, repeat: int) -> list[Result]:
    results = []
    with training.images(4) as data:
        for framework in training.FRAMEWORKS:
            ours, plain = [], []
            # Once for nothing: the first import after an installation compiles, and reads from disk.
            training.plain(framework, data)
            for _ in range(repeat):
                ours.append(training.job(framework, data))
                plain.append(training.plain(framework, data))
            imports = statistics.median(run.stamps.import_seconds for run in (*ours, *plain))
            work = [statistics.median(r.stamps.work_for_first_batch for r in runs) for runs in (ours, plain)]
            result = Result(
                benchmark=NAME,
                case=framework,
                unit="s",
                us=statistics.median(run.first_batch_seconds for run in ours),
                peer=statistics.median(run.first_batch_seconds for run in plain),
                note=f"the import of the framework takes {imports:.2f} s of both; processor time of the training "
                f"process up to the first batch, without that: {work[0]:.2f} s, peer {work[1]:.2f} s",
            )
            results.append(at_most_more(result, 2.0))
    return results
