"""The controller of TrainingJobs on a real cluster: how soon it acts, and whether the simulator predicts what it does.

A cluster has to be there, as for `kubernetes`; nothing else may run on it, nor a controller of its own. The one that is
measured runs beside it, as `elasticdl controller --kubeconfig=...`.

    python -m e2e.cluster up
    python -m benchmarks elastic_cluster
"""

from __future__ import annotations

from benchmarks.report import Result


def run(*, quick: bool, repeat: int) -> list[Result]:
    # The images have this package in them, and nothing of what makes a cluster.
    from benchmarks.kubernetes import controller_latency, edl_cases
    from benchmarks.kubernetes.elastic_jobs import running_controller
    from benchmarks.kubernetes.place import Place, enter

    results = []
    enter(("light",))
    for part in (controller_latency, edl_cases):
        with Place.new() as place, running_controller(place):
            results += part.run(place, quick=quick, repeat=repeat)
    return results
