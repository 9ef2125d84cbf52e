"""A Kubernetes for the tests.

Any will do: one that KUBECONFIG names, one of kind or of minikube, or, where there is none, one that is made here on
this machine of real parts (`selfmade.py`). The images that the tests run are made without a registry (`images.py`).

    python -m e2e.cluster up          start one on this machine (Debian, as root)
    python -m e2e.cluster images      make the images of the tests and give them to every node
    python -m e2e.cluster exec CMD    run CMD where its addresses answer, with KUBECONFIG set
    python -m e2e.cluster down        stop everything and leave nothing behind
    python -m e2e.cluster with CMD    all four in turn; a cluster that is up already is used, and stays
    python -m e2e.cluster prepare     what the first two need of this machine, ahead of them
"""
