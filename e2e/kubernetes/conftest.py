"""What tests on a cluster start from: a cluster with the images of this checkout, a namespace of their own, `kubectl`.

`make e2e-kubernetes` starts a cluster for them and ends it. Run by themselves they use the one that is there, or start
one and leave it: `python -m e2e.cluster down` ends it.

A cluster that KUBECONFIG names must let pods be root on its machines and mount their /tmp (`host_access.py`), and have
FlowSchemas (Kubernetes 1.20 and later have them). It is given images as `e2e/cluster/places.py` says. Tests are skipped
there, each with its reason, and never on a cluster of our own, if they want what it does not have:

- several machines that take pods, and that can be stopped: kind and minikube stop theirs, other clusters do not;
- an API server that stays away when it is stopped: those of kind and minikube are started again by their kubelets;
- a folder of this machine that all nodes see by the same path, for the page of the documentation that mounts
  `$PWD/data`: ELASTICDL_TEST_SHARED names it;
- room for exactly as many pods as the page of MNIST counts on; nodes that pull from a registry of this machine.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from e2e.cluster.places import (
    Cluster,
    Given,
    bring_up,
    find_cluster,
    provide_images,
    provide_wheel,
    schedulable,
)
from e2e.cluster.selfmade import SelfMade
from e2e.conftest import DEADLINE, ROOT, TEST_DEADLINE, wait_until
from elasticdl.platforms.kubernetes.kubeconfig import find_access

MANIFESTS = ROOT / "elasticdl" / "manifests"
_LONGEST = ("test_page", "test_image_of")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts tests that run alone last, so that none waits for another before. Of the others the longest come first.
    Tests that wait for each other's controllers are far apart, so that none occupies a process while it waits.
    """
    items.sort(key=lambda item: (_uses(item, "alone"), not item.name.startswith(_LONGEST)))
    turns = [item for item in items if _uses(item, "controller_turn")]
    for number, item in enumerate(turns):
        items.remove(item)
        items.insert(len(items) * number // len(turns), item)
    for item in items:
        if Path(__file__).parent in item.path.parents:
            # Not of the time in which it waits for its turn.
            item.add_marker(pytest.mark.timeout(TEST_DEADLINE, func_only=True), append=False)


def _uses(item: pytest.Item, fixture: str) -> bool:
    return fixture in getattr(item, "fixturenames", ())


@functools.cache
def api() -> httpx.Client:
    """Of the cluster that KUBECONFIG names."""
    access = find_access()
    return httpx.Client(
        base_url=access.server,
        verify=access.tls,
        headers=access.identity.headers(),
        trust_env=False,
        # A connection of its own for each look: the server may have been killed meanwhile.
        limits=httpx.Limits(max_keepalive_connections=0),
        timeout=DEADLINE,
    )


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """`kubectl` in one namespace."""

    namespace: str

    def __call__(self, *words: str, text: str = "") -> str:
        """What it prints; fails as it fails. `text` is its input."""
        done = self.attempt(*words, text=text)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def attempt(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = ["kubectl", f"--namespace={self.namespace}", *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """As `kubectl get KIND NAME --output=json`."""
        return self._look(f"{self._place(kind)}/{name}")

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """As `kubectl get KIND --selector=... --output=json`."""
        return list(self._look(self._place(kind), {"labelSelector": selector} if selector else {})["items"])

    def _look(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        """Asked again and again while a test waits, so not by a process for each look."""
        answer = api().get(path, params=query)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return dict(answer.json())

    def _place(self, kind: str) -> str:
        plural = {"networkpolicy": "networkpolicies"}.get(kind, kind if kind.endswith("s") else f"{kind}s")
        group = "/apis/networking.k8s.io/v1" if plural == "networkpolicies" else "/api/v1"
        return f"{group}/{plural}" if plural == "nodes" else f"{group}/namespaces/{self.namespace}/{plural}"

    def phases(self, selector: str = "app=elasticdl") -> dict[str, str]:
        """Pods by name, and how they are; one that is being deleted is "Terminating"."""
        return {
            pod["metadata"]["name"]: "Terminating"
            if "deletionTimestamp" in pod["metadata"]
            else pod["status"]["phase"]
            for pod in self.list("pods", selector)
        }

    def wait_for_phase(self, pod: str, phase: str) -> None:
        wait_until(lambda: self.phases("").get(pod) == phase, f"pod {pod} is {phase}")

    def wait_until_ready(self, pod: str) -> None:
        self("wait", "--for=condition=Ready", f"pod/{pod}", f"--timeout={DEADLINE:.0f}s")

    def left_of(self, job: str) -> builtins.list[str]:
        """All that there is of a job."""
        kinds = "pods,services,secrets,configmaps,networkpolicies"
        return self("get", kinds, f"--selector=elasticdl-job-name={job}", "--output=name").split()


def machines(kubectl: Kubectl) -> list[str]:
    """Returns the nodes that take pods of any job."""
    return schedulable(kubectl.list("nodes"))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster, with the images of this checkout. The tests are in its network from here on."""
    cluster = find_cluster()
    bring_up(cluster)
    provide_images(cluster)
    provide_wheel()
    cluster.enter()
    os.environ["KUBECONFIG"] = cluster.kubeconfig
    return cluster


@pytest.fixture
def room(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests share the cluster, but for those that are `alone` on it."""
    with (SelfMade.here().home / "room").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if "alone" in request.fixturenames else fcntl.LOCK_SH)
        yield


@pytest.fixture
def shared_folder(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """One that this machine and all nodes see by the same path."""
    if isinstance(cluster, SelfMade):
        # Pods run as other users than the one who makes the folders.
        for each in (tmp_path, *tmp_path.parents[:2]):
            each.chmod(0o755)
        yield tmp_path
        return
    given = os.environ.get("ELASTICDL_TEST_SHARED")
    if not given:
        pytest.skip("no folder is shared with the nodes: name one in ELASTICDL_TEST_SHARED")
    folder = Path(given) / uuid.uuid4().hex
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def three_machines(cluster: Cluster, whole_cluster: None) -> list[str]:
    """That can be stopped, but for the first: the batch server runs there."""
    if isinstance(cluster, Given):
        pytest.skip("this cluster has no known way to stop a machine")
    everywhere = Kubectl(namespace="default")
    if isinstance(cluster, SelfMade):
        # A machine that another test has just started again takes no pods for some seconds.
        wait_until(lambda: len(machines(everywhere)) >= 3, "three machines take pods")
    found = machines(everywhere)
    if len(found) < 3:
        pytest.skip(f"three machines are wanted that take pods, and there are {found}")
    return found[:3]


@pytest.fixture
def own_cluster(cluster: Cluster) -> SelfMade:
    """For what only a cluster of our own has."""
    if not isinstance(cluster, SelfMade):
        pytest.skip("only on a cluster of our own: see conftest.py")
    return cluster


@pytest.fixture
def alone(room: None) -> None:
    """No other test runs on the cluster until this one ends."""


@pytest.fixture
def whole_cluster(alone: None) -> None:
    """Nor are there pods of other tests: it counts on the room of all of the cluster."""
    everywhere = Kubectl(namespace="default")

    def others() -> list[str]:
        pods = json.loads(everywhere("get", "pods", "--all-namespaces", "--output=json"))["items"]
        return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["namespace"].startswith("test-")]

    wait_until(lambda: not others(), "the pods of other tests are gone")


@contextlib.contextmanager
def own_namespace() -> Iterator[Kubectl]:
    """A new namespace in which jobs may run."""
    kubectl = Kubectl(namespace=f"test-{uuid.uuid4().hex[:8]}")
    kubectl("create", "namespace", kubectl.namespace)
    files = [
        f"--filename={MANIFESTS}/{name}.yaml" for name in ("elasticdl-rbac", "priority-high", "priority-low")
    ]
    kubectl("apply", *files)
    try:
        yield kubectl
    finally:
        # Else the tests that wait for the whole cluster would wait for these pods.
        kubectl("delete", "namespace", kubectl.namespace, "--wait=false")
        # Nothing is left that would replace them, nor anything that a notice would help.
        kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")


@pytest.fixture
def kubectl(cluster: Cluster, room: None) -> Iterator[Kubectl]:
    """In a namespace of the test's own, in which jobs may run."""
    with own_namespace() as kubectl:
        yield kubectl


@dataclass(frozen=True, kw_only=True)
class Elasticdl:
    """The `elasticdl` command against the test's namespace."""

    namespace: str
    home: Path

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "elasticdl.cli.main", *words]
        return subprocess.run(command, **self._options, capture_output=True, check=False)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """The command on its way, with all that it prints."""
        command = [sys.executable, "-m", "elasticdl.cli.main", *words]
        return subprocess.Popen(command, **self._options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    @property
    def _options(self) -> dict[str, Any]:
        environment = {**os.environ, "ELASTICDL_HOME": str(self.home), "NO_COLOR": "1"}
        return {"cwd": ROOT, "env": environment, "text": True}

    def train(self, *flags: str) -> str:
        """Submits a job to the namespace. Returns what the command says."""
        return self.submit("train", *flags)

    def submit(self, kind: str, *flags: str) -> str:
        done = self(kind, f"--namespace={self.namespace}", *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def jobs(self, command: str, *words: str) -> str:
        """`elasticdl jobs ...`: what it prints."""
        done = self("jobs", command, *words, f"--namespace={self.namespace}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def elasticdl(kubectl: Kubectl, tmp_path: Path) -> Elasticdl:
    return Elasticdl(namespace=kubectl.namespace, home=tmp_path / "home")


@pytest.fixture
def held(kubectl: Kubectl, elasticdl: Elasticdl, tmp_path: Path) -> Iterator[Any]:
    """A job to come whose workers are held: see `held.py`. If it has come to its end, it is deleted as by a user."""
    from e2e.kubernetes.held import HeldJob

    folder = tmp_path / "held"
    folder.mkdir()
    held = HeldJob.prepared(kubectl, elasticdl, folder)
    yield held
    if held.is_over():
        held.delete()
