"""From the command to the end of the first batch: `elasticdl train` against the plain script, by phase.

Both import their framework once and build the same model; the rest of the difference is ours: the command, the master,
and the worker's start until its first shard. Also measured: the processor time of importing our code in each process of
a job, without a framework.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks import training
from benchmarks.processes import DEADLINE, ROOT
from benchmarks.report import Result, at_most_more

NAME = "first_batch"
# What each process imports at its start.
NODES = {
    "the command": "elasticdl.cli.main",
    "the master": "elasticdl.master.local_master",
    "a worker": "elasticdl.worker.process",
    "a server": "elasticdl.ps.server.parameter_server",
    "the controller": "elasticdl.controller.process",
    "elasticai_api": "elasticai_api.common.data_shard_service",
}
_IMPORT = (
    "import time, importlib, sys; began = time.process_time(); importlib.import_module(sys.argv[1]); "
    "print(time.process_time() - began)"
)


def run(*, quick: bool, repeat: int) -> Iterator[Result]:
    with training.images(4) as data:
        for framework in training.FRAMEWORKS:
            ours, plain = [], []
            # Not counted: the first import after an installation compiles, and reads from disk.
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
                note=f"the import of the framework takes {imports:.2f} s of both; ours: {_phases(ours)}; peer: "
                f"{_phases(plain)}; processor time of the training process up to the first batch, without that import: "
                f"{work[0]:.2f} s, peer {work[1]:.2f} s",
            )
            yield at_most_more(result, 2.0)
    for name, module in NODES.items():
        found = [_import_seconds(module) for _ in range(3)]
        yield Result(benchmark=NAME, case=f"import of {name}", unit="s", us=statistics.median(found))


def _phases(runs: list[training.Run]) -> str:
    """The duration of each phase, in order."""
    phases = {
        "to the training process": [run.stamps.starts[0].seconds - run.started for run in runs],
        "to its first batch, without the import": [
            run.stamps.begins[0].seconds - run.stamps.starts[0].seconds - run.stamps.import_seconds
            for run in runs
        ],
        "the batch": [run.stamps.ends[0].seconds - run.stamps.begins[0].seconds for run in runs],
    }
    return ", ".join(f"{name} {statistics.median(seconds):.2f} s" for name, seconds in phases.items())


def _import_seconds(module: str) -> float:
    command = [sys.executable, "-c", _IMPORT, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=DEADLINE)
    return float(done.stdout.splitlines()[-1])
