"""The image that `elasticdl zoo` builds runs on a cluster: as a plain user, all of it compiled and in its place. Nodes
get it from a file, and from a registry that it was pushed to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.archive import write_image
from e2e.cluster.images import debian_layer, packages_layer
from e2e.cluster.places import Cluster, provide_wheel
from e2e.cluster.selfmade import SelfMade
from e2e.conftest import ROOT
from e2e.kubernetes.conftest import Kubectl
from e2e.kubernetes.registry import registry

BASE, IMAGE = "localhost/elasticdl-test:base", "localhost/elasticdl-test:zoo"
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


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where buildah keeps its images: beside the test, so that it leaves nothing behind."""
    settings = tmp_path / "storage.conf"
    folders = f'graphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/run"\n'
    settings.write_text(f'[storage]\ndriver = "overlay"\n{folders}')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(settings))
    yield
    # Its mounts would keep the folder from being removed.
    subprocess.run(["buildah", "rmi", "--all", "--force"], capture_output=True, check=False)
    subprocess.run(["umount", f"{tmp_path}/images/overlay"], capture_output=True, check=False)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """What a user has: a model zoo, packages, a file for the cluster."""
    folder = tmp_path / "context"
    (folder / "model_zoo/mine").mkdir(parents=True)
    (folder / "model_zoo/mine/model.py").write_text("NAME = 'mine'\n")
    (folder / "pods.yaml").write_text("spec: {}\n")
    (folder / "dist").mkdir()
    shutil.copy(provide_wheel(), folder / "dist")
    return folder


@pytest.mark.usefixtures("storage")
def test_an_image_of_a_model_zoo(
    cluster: Cluster, kubectl: Kubectl, context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = SelfMade.here().home / "images"
    base = tmp_path / "base.tar"
    write_image(base, name=BASE, layers=[debian_layer(layers), packages_layer(layers)], config={})
    subprocess.run(["buildah", "pull", "--quiet", f"docker-archive:{base}"], check=True, capture_output=True)

    zoo(
        context,
        "init",
        "--model_zoo=model_zoo",
        f"--base_image={BASE}",
        "--local_pkg_dir=dist",
        "--cluster_spec=pods.yaml",
    )
    archive = tmp_path / "zoo.tar"
    said = zoo(context, "build", "--tool=buildah", f"--image={IMAGE}", f"--archive={archive}", ".")
    assert f"The image {IMAGE} is built with buildah." in said

    cluster.load(archive)
    kubectl("apply", "-f", "-", text=json.dumps(pod("given", IMAGE, "Never")))
    with registry(tmp_path / "registry") as address:
        allow(address, tmp_path, monkeypatch)
        pushed = f"{address}/team/elasticdl:zoo"
        subprocess.run(["buildah", "tag", IMAGE, pushed], check=True)
        assert f"The image {pushed} is pushed." in zoo(context, "push", "--tool=buildah", pushed)
        kubectl("apply", "-f", "-", text=json.dumps(pod("pulled", pushed, "Always")))
        for name in ("given", "pulled"):
            kubectl.wait_for_phase(name, "Succeeded")
            assert json.loads(kubectl("logs", name)) == {
                "uid": 1000,
                "home": True,
                "name": "mine",
                "compiled": [True, True],
                "spec": "spec: {}\n",
            }


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


def pod(name: str, image: str, policy: str) -> dict[str, Any]:
    command = ["python3", "-c", _QUESTIONS]
    container = {"name": "main", "image": image, "imagePullPolicy": policy, "command": command}
    safe = {"runAsNonRoot": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "securityContext": safe, "containers": [container]},
    }
