"""The image that `elasticdl zoo` builds runs on a cluster: as a plain user, all of it compiled and in its place, with
whichever tool it was built. Nodes get it from a file, and from a registry that it was pushed to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.archive import write_image
from e2e.cluster.commands import run
from e2e.cluster.images import debian_layer, packages_layer
from e2e.cluster.places import Cluster, provide_wheel
from e2e.cluster.selfmade import SelfMade
from e2e.conftest import ROOT
from e2e.kubernetes.conftest import Elasticdl, Kubectl
from e2e.kubernetes.engine import docker_engine
from e2e.kubernetes.registry import registry

BASE = "localhost/elasticdl-test:base"
# What the pod says about itself: who it is, what it finds, what is compiled.
_QUESTIONS = """
import importlib.util, json, os, pathlib
import elasticdl
module = importlib.import_module("model_zoo.mine.model")
print(json.dumps({
    "uid": os.getuid(),
    "home": os.access(os.environ["HOME"], os.W_OK),
    "name": module.NAME,
    "compiled": [os.path.exists(importlib.util.cache_from_source(each.__file__)) for each in (elasticdl, module)],
    "spec": pathlib.Path("/cluster_spec/pods.yaml").read_text(),
}))
"""
_PROGRAM = """
from elasticai_api.common.data_shard_service import DataShardService
from model_zoo.mine.model import NAME
shards = DataShardService(batch_size=10, num_epochs=1, dataset_size=100, num_minibatches_per_shard=2)
while shard := shards.fetch_shard():
    for start in range(shard.start, shard.end, 10):
        shards.report_batch_done(10)
print("trained", NAME, flush=True)
"""


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where buildah and podman keep their images: beside the test, so that they leave nothing behind."""
    settings = tmp_path / "storage.conf"
    folders = f'graphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/run"\n'
    settings.write_text(f'[storage]\ndriver = "overlay"\n{folders}')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(settings))
    yield
    # Its mounts would keep the folder from being removed.
    subprocess.run(["buildah", "rmi", "--all", "--force"], capture_output=True, check=False)
    subprocess.run(["umount", f"{tmp_path}/images/overlay"], capture_output=True, check=False)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The image to begin with, as an archive: what pip would need is in it."""
    layers = SelfMade.here().home / "images"
    path = tmp_path / "base.tar"
    write_image(path, name=BASE, layers=[debian_layer(layers), packages_layer(layers)], config={})
    return path


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """What a user has: a model zoo, packages, a file for the cluster; and the Dockerfile that was written for them."""
    folder = tmp_path / "context"
    (folder / "model_zoo/mine").mkdir(parents=True)
    name(folder, "mine")
    (folder / "model_zoo/mine/program.py").write_text(_PROGRAM)
    (folder / "pods.yaml").write_text("spec: {}\n")
    (folder / "dist").mkdir()
    shutil.copy(provide_wheel(), folder / "dist")
    more = (f"--base_image={BASE}", "--local_pkg_dir=dist", "--cluster_spec=pods.yaml")
    zoo(folder, "init", "--model_zoo=model_zoo", *more)
    return folder


def name(context: Path, text: str) -> None:
    """Names the model, which distinguishes one image from another."""
    (context / "model_zoo/mine/model.py").write_text(f"NAME = {text!r}\n")


@pytest.mark.usefixtures("storage")
def test_image_of_podman_archive_and_of_buildah_registry_trains(
    cluster: Cluster,
    kubectl: Kubectl,
    base: Path,
    context: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("buildah", "pull", "--quiet", f"docker-archive:{base}", stdout=subprocess.DEVNULL)
    give(cluster, kubectl, context, "podman")
    if not isinstance(cluster, SelfMade):
        # Whether nodes trust a registry without encryption is their own affair.
        ends_well(kubectl, "podman", model="mine")
        return

    name(context, "changed")
    with registry(tmp_path / "registry") as address:
        allow(address, tmp_path, monkeypatch)
        pushed = f"{address}/team/elasticdl:zoo"
        said = zoo(context, "build", "--tool=buildah", f"--image={pushed}", ".")
        assert f"The image {pushed} is built with buildah." in said
        assert f"The image {pushed} is pushed." in zoo(context, "push", "--tool=buildah", pushed)
        begin(kubectl, "pulled", pushed, "Always")
        ends_well(kubectl, "podman", model="mine")
        ends_well(kubectl, "pulled", model="changed")


def test_image_of_docker_archive_trains(
    cluster: Cluster,
    kubectl: Kubectl,
    elasticdl: Elasticdl,
    base: Path,
    context: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with docker_engine() as found:
        for variable, value in found.items():
            monkeypatch.setenv(variable, value)
        run("docker", "load", "--quiet", f"--input={base}", stdout=subprocess.DEVNULL)
        give(cluster, kubectl, context, "docker")
    ends_well(kubectl, "docker", model="mine")
    trains(elasticdl, "elasticdl:docker")


def give(cluster: Cluster, kubectl: Kubectl, context: Path, tool: str) -> None:
    """An image of the name that the guides give it, and a pod of it."""
    image, archive = f"elasticdl:{tool}", context.parent / "zoo.tar"
    said = zoo(context, "build", f"--tool={tool}", f"--image={image}", f"--archive={archive}", ".")
    assert f"The image {image} is built with {tool}." in said
    cluster.load(archive)
    begin(kubectl, tool, image, "Never")


def begin(kubectl: Kubectl, name: str, image: str, policy: str) -> None:
    """A pod of the image says what it finds."""
    command = ["python3", "-c", _QUESTIONS]
    container = {"name": "main", "image": image, "imagePullPolicy": policy, "command": command}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True},
            "containers": [container],
        },
    }
    kubectl("create", "--filename=-", text=json.dumps(pod))


def ends_well(kubectl: Kubectl, name: str, *, model: str) -> None:
    kubectl.wait_for_phase(name, "Succeeded")
    assert json.loads(kubectl("logs", name)) == {
        "uid": 1000,
        "home": True,
        "name": model,
        "compiled": [True, True],
        "spec": "spec: {}\n",
    }


def trains(elasticdl: Elasticdl, image: str) -> None:
    """A job whose master and worker are of the image, and whose program is in its model zoo."""
    said = elasticdl.train(
        "--job_name=job",
        f"--image_name={image}",
        "--image_pull_policy=Never",
        "--job_command=python3 -m model_zoo.mine.program",
        "--wait",
    )
    assert "Exact: every sample of every epoch is accounted for." in said
    assert "trained mine" in elasticdl.jobs("logs", "job")


def allow(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To talk to that registry without encryption."""
    settings = folder / "registries.conf"
    settings.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))


def zoo(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "elasticdl.cli.main", "zoo", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
