"""Jobs on Kubernetes: how soon they train, how soon lost nodes are replaced and obstacles are reported, what their
master costs.

A cluster has to be there: the one that KUBECONFIG names, or one of our own on this machine (`python -m e2e.cluster
up`). It gets the images of this checkout, and a namespace for each part of the measurement. Times of pods are compared
with times of this machine, so the cluster's nodes have to be on it, as those of kind and of a cluster of our own are.
"""

from __future__ import annotations

from benchmarks.report import Result


def run(*, quick: bool, repeat: int) -> list[Result]:
    # The images have this package in them, and nothing of what makes a cluster.
    from benchmarks import training
    from benchmarks.kubernetes import diagnosis, first_batch, preemption, replacement, steady_state
    from benchmarks.kubernetes.place import Place, enter

    results = []
    enter(("light", *training.FRAMEWORKS))
    for part in (first_batch, replacement, diagnosis, preemption, steady_state):
        with Place.new() as place:
            results += part.run(place, quick=quick, repeat=repeat)
    return results
