"""The controller of TrainingJobs on a real cluster: reaction times, and whether the simulator predicts its decisions.

Needs a cluster, as `kubernetes` does, without other pods and without a controller. The measured controller runs on this
machine, as `elasticdl controller --kubeconfig=...`.

    python -m e2e.cluster up
    python -m benchmarks elastic_cluster

`ELASTICDL_BENCHMARK_ONLY=edl_cases` (or `controller_latency`, `preempted_job`) measures only that part.
"""

from __future__ import annotations

import os

from benchmarks.report import Result

ONLY = "ELASTICDL_BENCHMARK_ONLY"


def run(*, quick: bool, repeat: int) -> list[Result]:
    # The images contain this package, but not the code that creates a cluster.
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
