"""TrainingJobs and a controller outside of the cluster, as tests use them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.selfmade import SelfMade
from e2e.conftest import ROOT, wait_until
from e2e.kubernetes.batch_server import BatchServer
from e2e.kubernetes.conftest import MANIFESTS, Kubectl, api

OURS, EDL = "trainingjobs.elasticdl.org", "trainingjobs.paddlepaddle.org"
IMAGE = "elasticdl-test:light"
# Of the program e2e/zoo/held/slow.py.
SAMPLES = 20_000


def install_definitions() -> None:
    """They stay: several tests use them, and an API server takes seconds to publish them."""
    everywhere = Kubectl(namespace="default")
    # Of two processes that create an object at the same time, one fails.
    with _locked("definitions", fcntl.LOCK_EX):
        everywhere("apply", f"--filename={MANIFESTS / 'trainingjob-crd.yaml'}")
    everywhere("wait", "--for=condition=Established", f"crd/{OURS}", f"crd/{EDL}", "--timeout=30s")
    wait_until(lambda: everywhere.attempt("get", "tj").returncode == 0, "kubectl finds the short name")


@contextlib.contextmanager
def only_controller() -> Iterator[None]:
    """Two controllers with different Leases would both size the same jobs, so tests with one take turns."""
    with _locked("controller", fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def no_controller() -> Iterator[None]:
    """No test runs a controller meanwhile. Several tests may be in here."""
    with _locked("controller", fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def _locked(name: str, kind: int) -> Iterator[None]:
    with (SelfMade.here().home / name).open("w") as file:
        fcntl.flock(file, kind)
        yield


class ControllerProcess:
    """`elasticdl controller`, with its log in a file. The Lease is in the namespace `namespace`."""

    def __init__(self, name: str, *, folder: Path, namespace: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        kubeconfig = os.environ["KUBECONFIG"]
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        words = [f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", f"--identity={name}"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "elasticdl.cli.main", "controller", *words],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for_line(self, words: str) -> None:
        def is_there() -> bool:
            assert self.process.poll() is None, self.log
            return words in self.log

        wait_until(is_there, f"{self.name} logs {words!r}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As Ctrl-C does. Returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)


@dataclass(frozen=True, kw_only=True)
class TrainingJobs:
    """Those of one namespace, whose trainers run the slow program. `needs`: what each of them requests besides."""

    kubectl: Kubectl
    batch_server: BatchServer
    needs: Mapping[str, str]

    @classmethod
    def prepared(
        cls, kubectl: Kubectl, *, needs: Mapping[str, str], batch_server: BatchServer | None = None
    ) -> TrainingJobs:
        """`batch_server`: that of another namespace, by default one of this."""
        kubectl("create", "configmap", "held", f"--from-file={ROOT}/e2e/zoo/held")
        return cls(
            kubectl=kubectl,
            batch_server=batch_server or BatchServer.opened(kubectl, programs="held"),
            needs=needs,
        )

    def slow_down(self) -> None:
        """All trainers take their time until `release`."""
        self.batch_server.ask("PUT", "limit/0")

    def release(self) -> None:
        self.batch_server.ask("DELETE", "limit")

    def document(
        self, name: str, low: int, high: int, *, batch_seconds: float = 0.5, **spec: Any
    ) -> dict[str, Any]:
        """`batch_seconds`: how long a batch takes until `release`."""
        server = f"ELASTICDL_TEST_BATCH_SERVER={self.batch_server.address}"
        variables = f"{server} ELASTICDL_TEST_BATCH_SECONDS={batch_seconds}"
        # Limits are what is requested.
        small = {"cpu": "200m", "memory": "128Mi"}
        return {
            "apiVersion": "elasticdl.org/v1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {
                "image": IMAGE,
                "fault_tolerant": True,
                "volumes": [{"name": "held", "configMap": {"name": "held"}}],
                "volumeMounts": [{"name": "held", "mountPath": "/held"}],
                "trainer": {
                    "entrypoint": f"{variables} exec python3 /held/slow.py",
                    "min-instance": low,
                    "max-instance": high,
                    "resources": {"requests": {**small, **self.needs}},
                },
                "master": {"resources": {"requests": small}},
                **spec,
            },
        }

    def create(self, name: str, low: int, high: int, **spec: Any) -> None:
        self.apply(self.document(name, low, high, **spec))

    def apply(self, document: dict[str, Any]) -> None:
        self.kubectl("apply", "--filename=-", text=json.dumps(document))

    def read(self, name: str) -> dict[str, Any]:
        path = f"/apis/elasticdl.org/v1/namespaces/{self.kubectl.namespace}/trainingjobs/{name}"
        answer = api().get(path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.read(name).get("status") or {})

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        found = self.status(name).get("conditions") or ()
        return next((each for each in found if each["type"] == kind), {})

    def events(self, name: str) -> list[str]:
        """Reasons and messages, the oldest first."""
        selector = f"involvedObject.kind=TrainingJob,involvedObject.name={name}"
        found = json.loads(self.kubectl("get", "events", f"--field-selector={selector}", "--output=json"))
        items = sorted(found["items"], key=lambda event: event["metadata"]["creationTimestamp"])
        return [f"{event['reason']}: {event['message']}" for event in items]

    def workers(self, name: str) -> set[str]:
        """Names of the workers' pods that run and stay."""
        selector = f"elasticdl-job-name={name},elasticdl-replica-type=worker"
        phases = self.kubectl.phases(selector)
        return {pod for pod, phase in phases.items() if phase == "Running"}

    def scale(self, name: str, count: int) -> None:
        self.kubectl("scale", f"tj/{name}", f"--replicas={count}")

    def wait_for(self, name: str, condition: Callable[[dict[str, Any]], Any], what: str) -> None:
        try:
            wait_until(lambda: condition(self.status(name)), f"{name}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.status(name), indent=1)}") from None

    def wait_for_condition(self, name: str, kind: str, value: str, reason: str) -> None:
        def is_there() -> bool:
            found = self.condition(name, kind)
            return (found.get("status"), found.get("reason")) == (value, reason)

        wait_until(is_there, f"{name} has the condition {kind}={value} for {reason}")

    def wait_for_event(self, name: str, reason: str) -> None:
        """The controller writes events after the status."""
        wait_until(
            lambda: any(event.startswith(f"{reason}: ") for event in self.events(name)),
            f"{name} has an event for {reason}",
        )

    def wait_for_phase(self, name: str, phase: str) -> None:
        self.wait_for(name, lambda status: status.get("phase") == phase, f"is {phase}")

    def wait_for_size(self, **sizes: int) -> None:
        """So many workers run in each job, and as many are desired and ready."""
        self._wait_for_sizes(lambda found: found == sizes, f"the sizes are {sizes}", [*sizes])

    def wait_for_total(self, total: int, *names: str) -> None:
        """All of the jobs run, with so many workers together."""
        self._wait_for_sizes(
            lambda found: 0 not in found.values() and sum(found.values()) == total,
            f"{total} workers run in {names}",
            names,
        )

    def _wait_for_sizes(
        self, reached: Callable[[dict[str, int]], bool], what: str, names: Sequence[str]
    ) -> None:
        try:
            wait_until(lambda: reached({name: self._size(name) for name in names}), what)
        except AssertionError as error:
            found = {name: (self.status(name), sorted(self.workers(name))) for name in names}
            raise AssertionError(f"{error}\n{json.dumps(found, indent=1)}") from None

    def _size(self, name: str) -> int:
        """The number of workers, 0 while what is desired, ready and running differs."""
        trainer = self.status(name).get("trainer") or {}
        counts = {trainer.get("ready"), trainer.get("desired"), len(self.workers(name))}
        return counts.pop() or 0 if len(counts) == 1 else 0

    def ends_exactly(self, name: str) -> None:
        self.wait_for_phase(name, "Succeeded")
        audit = self.status(name)["audit"]
        assert audit["exact"], audit
        assert sum(row["done"] for row in audit["rows"]) == SAMPLES, audit

    def delete(self, name: str) -> None:
        """Nothing is left then."""
        self.kubectl("delete", "tj", name)
        wait_until(lambda: not self.kubectl.left_of(name), f"nothing is left of {name}")
