"""The documentation of Kubernetes, followed line by line on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster.guide_images import provide_guide_images
from e2e.cluster.places import Cluster, provide_images
from e2e.cluster.selfmade import SelfMade
from e2e.conftest import ROOT, TEST_DEADLINE
from e2e.kubernetes.conftest import MANIFESTS, Kubectl
from e2e.kubernetes.training_jobs import EDL, OURS, only_controller
from e2e.pages import CLUSTER_PAGES, follow

# What a reader has built by then, and which image of the tests it is.
_IMAGES = {
    "elasticdl:mnist": "keras",
    "elasticdl:master": "light",
    "elasticdl:estimator": "keras",
    "elasticdl:controller": "light",
    "my-training-job:1": "paddle",
}
# Counts on the room of all of the cluster.
_MNIST = ROOT / "docs" / "kubernetes.md"
# Runs jobs in the namespace that readers use if they name none; so does the one above, but never at the same time.
_ESTIMATORS = ROOT / "docs" / "kubernetes-estimators.md"
# Jobs of Paddle's guide, with images of their own.
_PADDLE = ROOT / "docs" / "paddle-kubernetes.md"
_PADDLE_OBJECTS = ("k8s_train/job", "k8s_train/rbac", "k8s_data/data", "k8s_data/volume")
# Has a controller for all of the cluster, and counts on its room.
_ELASTIC = ROOT / "docs" / "elastic-clusters.md"
# Less than a test may take, so that what a page has left can be removed.
_SECONDS = TEST_DEADLINE - 100
_OTHERS = sorted({*CLUSTER_PAGES} - {_MNIST, _ESTIMATORS, _PADDLE, _ELASTIC})


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("page", _OTHERS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_page_work_on_cluster(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path, seconds=_SECONDS)


@pytest.mark.usefixtures("room")
def test_page_of_estimators(shared_folder: Path, cluster: Cluster) -> None:
    follow_jobs(_ESTIMATORS, shared_folder, cluster)


@pytest.mark.usefixtures("room")
def test_page_of_paddle(shared_folder: Path, cluster: Cluster) -> None:
    provide_guide_images(cluster, "registry.example.com/team")
    try:
        follow(_PADDLE, shared_folder, seconds=_SECONDS)
    finally:
        default = Kubectl(namespace="default")
        files = [f"--filename={ROOT}/paddle/{name}.yaml" for name in _PADDLE_OBJECTS]
        default("delete", "--ignore-not-found", *files)


@pytest.mark.usefixtures("whole_cluster")
def test_page_of_mnist(shared_folder: Path, own_cluster: SelfMade) -> None:
    follow_jobs(_MNIST, shared_folder, own_cluster)


@pytest.mark.usefixtures("whole_cluster")
def test_page_of_elastic_clusters(shared_folder: Path, own_cluster: SelfMade) -> None:
    everywhere = Kubectl(namespace="paddlecloud")
    manifests = ("trainingjob-crd", "edl-controller")
    # Other tests leave the definitions; the page creates them.
    everywhere("delete", "crd", OURS, EDL, "--ignore-not-found")
    try:
        with only_controller():
            follow_jobs(_ELASTIC, shared_folder, own_cluster)
    finally:
        for name in manifests:
            everywhere("delete", f"--filename={MANIFESTS / name}.yaml", "--ignore-not-found")
        everywhere("delete", "namespace", "paddlecloud", "--ignore-not-found")
        account = ("serviceaccount/viewer", "role/see-jobs", "rolebinding/viewer-sees-jobs")
        Kubectl(namespace="default")("delete", *account, "--ignore-not-found")


def follow_jobs(page: Path, folder: Path, cluster: Cluster) -> None:
    for name, framework in _IMAGES.items():
        if name in page.read_text():
            provide_images(cluster, [framework], name=name)
    default = Kubectl(namespace="default")
    default("apply", "-f", str(MANIFESTS / "elasticdl-rbac.yaml"))
    try:
        follow(page, folder, seconds=_SECONDS)
        kinds = "pods,services,secrets,configmaps,networkpolicies"
        left = default("get", kinds, "--selector=elasticdl-job-name", "--output=name")
        assert left == "", f"{page.name} leaves behind: {left}"
    finally:
        # What a page that failed has left.
        default("delete", "configmap,deployment", "--selector=app=elasticdl", "--ignore-not-found")
        default("delete", "deployment", "test-service", "--ignore-not-found")
