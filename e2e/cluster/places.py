"""The cluster that the tests use: which one it is, and what tests ask of it beyond what `kubectl` can do.

- KUBECONFIG is set, to one path or to several as for kubectl: the cluster of its current context. One of kind or
  minikube is given images by that program, any other by the command in ELASTICDL_TEST_LOAD, in which `{}` stands for
  the archive.
- Otherwise one is made on this machine (`selfmade.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from e2e.cluster.archive import digest_of
from e2e.cluster.commands import run, succeeds, wait_for
from e2e.cluster.images import FRAMEWORKS, Image, make_images, write_archive
from e2e.cluster.package import make_wheel
from e2e.cluster.selfmade import SelfMade

# Every node gets these; the others are given by the tests that use them.
_USUAL = ("light", "keras", "torch")


class Cluster(Protocol):
    @property
    def kubeconfig(self) -> str:
        """For the variable KUBECONFIG: a path, or several."""

    def enter(self) -> None:
        """From now on this process and all that it starts reach the cluster's addresses."""

    def load(self, archive: Path) -> None:
        """Gives every node an image."""

    def stop_node(self, node: str) -> None:
        """As a power cut would."""

    def start_node(self, node: str) -> None: ...

    def stop_api_server(self) -> None:
        """Kills it. Where something else starts it again, that is the cluster's own doing."""

    def start_api_server(self) -> None:
        """Returns when it answers."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    kubeconfig: str
    name: str

    def enter(self) -> None:
        """Its API server listens on this machine."""

    def load(self, archive: Path) -> None:
        run("kind", "load", "image-archive", archive, "--name", self.name)

    def stop_node(self, node: str) -> None:
        run("docker", "kill", node)

    def start_node(self, node: str) -> None:
        run("docker", "start", node)

    def stop_api_server(self) -> None:
        run("docker", "exec", f"{self.name}-control-plane", "pkill", "-9", "kube-apiserver")

    def start_api_server(self) -> None:
        wait_for_api_server(self.kubeconfig)


@dataclass(frozen=True, kw_only=True)
class Minikube:
    kubeconfig: str
    name: str

    def enter(self) -> None:
        """Its API server listens on this machine."""

    def load(self, archive: Path) -> None:
        run("minikube", "--profile", self.name, "image", "load", archive)

    def stop_node(self, node: str) -> None:
        run("minikube", "--profile", self.name, "node", "stop", node)

    def start_node(self, node: str) -> None:
        run("minikube", "--profile", self.name, "node", "start", node)

    def stop_api_server(self) -> None:
        run("minikube", "--profile", self.name, "ssh", "sudo pkill -9 kube-apiserver")

    def start_api_server(self) -> None:
        wait_for_api_server(self.kubeconfig)


@dataclass(frozen=True, kw_only=True)
class Given:
    """One of which nothing is known but how to talk to it."""

    kubeconfig: str

    def enter(self) -> None:
        """Makes the cluster that KUBECONFIG names reachable."""

    def load(self, archive: Path) -> None:
        command = os.environ.get("ELASTICDL_TEST_LOAD")
        if not command:
            raise SystemExit(
                "Say in ELASTICDL_TEST_LOAD how the cluster gets an image, such as 'ctr image import {}'."
            )
        run(*(word.replace("{}", str(archive)) for word in shlex.split(command)))

    def stop_node(self, node: str) -> None:
        raise NotImplementedError(
            f"{node} cannot be stopped here: use a cluster of kind, of minikube or of our own"
        )

    def start_node(self, node: str) -> None:
        raise NotImplementedError(f"{node} cannot be started here")

    def stop_api_server(self) -> None:
        raise NotImplementedError("its API server cannot be stopped here")

    def start_api_server(self) -> None:
        raise NotImplementedError("its API server cannot be started here")


def wait_for_api_server(kubeconfig: str) -> None:
    kubectl = ("env", f"KUBECONFIG={kubeconfig}", "kubectl", "get", "--raw", "/readyz")
    wait_for("the API server", lambda: succeeds(*kubectl), seconds=180)


def find_cluster() -> Cluster:
    named = os.environ.get("KUBECONFIG")
    own = SelfMade.here()
    if not named or named == own.kubeconfig:
        return own
    context = _configured(named, "current-context").strip()
    if context.startswith("kind-"):
        return Kind(kubeconfig=named, name=context.removeprefix("kind-"))
    if context.startswith("minikube"):
        return Minikube(kubeconfig=named, name=context)
    return Given(kubeconfig=named)


def _configured(kubeconfig: str, *words: str) -> str:
    """What `kubectl config` says."""
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    command = ["kubectl", "config", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def schedulable(nodes: Iterable[dict[str, Any]]) -> list[str]:
    """Returns the nodes that take pods of any job: not one kept for the control plane, as kind's is."""
    return [
        str(node["metadata"]["name"])
        for node in nodes
        if not node["spec"].get("unschedulable")
        and not any(taint["effect"] != "PreferNoSchedule" for taint in node["spec"].get("taints", []))
    ]


def bring_up(cluster: Cluster) -> bool:
    """Whether it had to be started. Three nodes with room for three pods of two CPUs each."""
    if not isinstance(cluster, SelfMade) or cluster.is_up:
        return False
    cluster.up(size=3, cpus=6)
    return True


def make_layers() -> None:
    """What the images consist of, ahead of the moment when there is a cluster to give them to."""
    with own_folder() as folder:
        make_images(folder, frameworks=FRAMEWORKS)
        make_wheel(folder)


def provide_wheel() -> Path:
    """elasticdl as a package. Outside of the cluster's network, if it has not been made yet."""
    with own_folder() as folder:
        return make_wheel(folder)


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """The folder of layers, for one process at a time."""
    folder = SelfMade.here().home / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def provide_images(
    cluster: Cluster, frameworks: Iterable[str] | None = None, *, tag: str = "", name: str = ""
) -> list[str]:
    """Makes the images and gives them to the nodes, where that has not been done.

    What a cluster has is written down; a layer is sent to one of our own once. `name` gives an image another name.
    """
    with own_folder() as folder:
        images = make_images(folder, frameworks=frameworks or _USUAL, tag=tag)
        images = [replace(image, name=name or image.name) for image in images]
        load_images(cluster, folder, images)
    return [image.name for image in images]


def load_images(cluster: Cluster, folder: Path, images: Iterable[Image]) -> None:
    """Gives the nodes what they lack of the images. `folder` is that of layers, held by this process."""
    about = _configured(cluster.kubeconfig, "view", "--minify", "--raw")
    of_cluster = hashlib.sha256(about.encode()).hexdigest()[:12]
    done = folder / f"loaded-{of_cluster}"
    loaded = set(done.read_text().split()) if done.exists() else set()
    for image in images:
        digests = {layer: digest_of(layer)[:12] for layer in image.layers}
        whole = f"{image.name}={'+'.join(digests.values())}"
        if whole in loaded:
            continue
        archive = folder / "image.tar"
        # Not the code: that of an image that is gone is gone too.
        there = [layer for layer in image.base if digests[layer] in loaded]
        write_archive(image, archive, left_out=there if isinstance(cluster, SelfMade) else ())
        cluster.load(archive)
        archive.unlink()
        loaded = {each for each in loaded if not each.startswith(f"{image.name}=")}
        loaded |= {whole, *(digests[layer] for layer in image.base)}
        done.write_text("\n".join(sorted(loaded)))
