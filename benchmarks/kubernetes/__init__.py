"""Jobs on Kubernetes: time to train, to replace lost nodes and to report obstacles, and the cost of the master.

Needs a cluster: the one of KUBECONFIG, or our own on this machine (`python -m e2e.cluster up`). It gets the images of
this checkout, and a namespace for each part of the measurement. Times of pods are compared with times of this machine,
so the nodes of the cluster must be on it, as those of kind and of our own cluster are.
"""

from __future__ import annotations

from benchmarks.report import Result


def run(*, quick: bool, repeat: int) -> list[Result]:
    # The images contain this package, but not the code that creates a cluster.
    from benchmarks import training
    from benchmarks.kubernetes import diagnosis, first_batch, preemption, replacement, steady_state
    from benchmarks.kubernetes.place import Place, enter

    results = []
    enter(("light", *training.FRAMEWORKS))
    for part in (first_batch, replacement, diagnosis, preemption, steady_state):
        with Place.new() as place:
            results += part.run(place, quick=quick, repeat=repeat)
    return results
