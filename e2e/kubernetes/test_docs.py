"""The documentation of Kubernetes, followed line by line on a cluster that nobody else uses meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster.places import Cluster, provide_images
from e2e.conftest import ROOT
from e2e.kubernetes.conftest import MANIFESTS, Kubectl
from e2e.pages import CLUSTER_PAGES, follow

# What a reader has built by then, and which image of the tests it is.
_IMAGES = {"elasticdl:mnist": "keras", "elasticdl:master": "light", "elasticdl:estimator": "keras"}


# Waiting for the cluster to be free is part of it.
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("page", CLUSTER_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, cluster: Cluster, whole_cluster: None) -> None:
    for name, framework in _IMAGES.items():
        if name in page.read_text():
            provide_images(cluster, [framework], name=name)
    default = Kubectl(namespace="default")
    default("apply", "-f", str(MANIFESTS / "elasticdl-rbac.yaml"))
    # Pods are other users than whoever makes the folders.
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    try:
        follow(page, tmp_path, seconds=1100)
    finally:
        # What a page that failed has left.
        default("delete", "configmap,deployment", "--selector=app=elasticdl", "--ignore-not-found")
        default("delete", "deployment", "test-service", "--ignore-not-found")
