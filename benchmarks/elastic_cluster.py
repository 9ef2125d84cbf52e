"""The controller of TrainingJobs on a real cluster: how soon it acts, and whether the simulator predicts what it does.

A cluster has to be there, as for `kubernetes`; nothing else may run on it, nor a controller of its own. The one that is
measured runs beside it, as `elasticdl controller --kubeconfig=...`.

    python -m e2e.cluster up
    python -m benchmarks elastic_cluster

`ELASTICDL_BENCHMARK_ONLY=edl_cases` (or `controller_latency`, `preempted_job`) measures that part alone.
"""

from __future__ import annotations

import os

from benchmarks.report import Result

ONLY = "ELASTICDL_BENCHMARK_ONLY"


def run(*, quick: bool, repeat: int) -> list[Result]:
    # The images have this package in them, and nothing of what makes a cluster.
    from benchmarks.kubernetes import controller_latency, edl_cases, preempted_job
    from benchmarks.kubernetes.elastic_jobs import running_controller
    from benchmarks.kubernetes.place import Place, enter

    parts = {
        part.__name__.rpartition(".")[2]: part for part in (controller_latency, preempted_job, edl_cases)
    }
    only = os.environ.get(ONLY, "")
    if only and only not in parts:
        raise SystemExit(f"{ONLY}={only} names no part of elastic_cluster. Parts: {', '.join(parts)}.")
    chosen = [parts[only]] if only else list(parts.values())
    results = []
    enter(("light", *(preempted_job.IMAGES if preempted_job in chosen else ())))
    for part in chosen:
        with Place.new() as place, running_controller(place):
            results += part.run(place, quick=quick, repeat=repeat)
    return results
