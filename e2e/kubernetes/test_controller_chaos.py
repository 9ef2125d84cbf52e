"""Three elastic jobs and a Deployment of a higher priority, while a seed decides what fails next: the leader is killed
every 20 s, machines are stopped and started, masters and workers are deleted, the Deployment comes and goes.

Afterwards the cluster must converge to what it was before, each job must end with an exact audit, and nothing of it may
be left when it is deleted. `make chaos-kubernetes` runs more seeds, longer, with the controller in the cluster and
outside of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from e2e.cluster.selfmade import SelfMade
from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Kubectl, machines
from e2e.kubernetes.controller import NAME as CONTROLLER
from e2e.kubernetes.controller import installed_controller, leader, log_of, pods, wait_for_leader
from e2e.kubernetes.test_preemption import service
from e2e.kubernetes.training_jobs import ControllerProcess, TrainingJobs, install_definitions, only_controller

# Three fit on a machine of six CPUs, and the masters and controllers beside them.
NEEDS = {"cpu": "1700m"}
TOTAL = 9
# The jobs fit beside the Deployment with their minimum of one trainer, but not while a machine is stopped.
JOBS, REPLICAS = ("first", "second", "third"), 5
LEADER_SECONDS = 20.0

_RUNS = int(os.environ.get("ELASTICDL_CHAOS_RUNS", "0"))
_SECONDS = 120.0 if _RUNS else 45.0
_CASES = [(place, seed) for seed in range(_RUNS) for place in ("inside", "outside")] or [("inside", 0)]


class Controllers(Protocol):
    """Two replicas of the controller, of which one leads."""

    def kill_leader(self) -> str:
        """Without notice; a new replica takes its place. Returns its name, "" if none leads."""

    def check(self) -> None:
        """Both run, and have logged neither an unexpected error nor a missing right."""


class DeployedControllers:
    """Those of the manifest."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def kill_leader(self) -> str:
        if name := leader(self._kubectl):
            self._kubectl("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")
        return name

    def check(self) -> None:
        wait_for_leader(self._kubectl)
        # Of a pod whose container is being created there is no log.
        self._kubectl("rollout", "status", f"deployment/{CONTROLLER}", "--timeout=120s")
        for pod in pods(self._kubectl):
            log = log_of(self._kubectl, pod)
            assert "Traceback" not in log, log
            assert "forbidden" not in log.lower(), log


class ControllerProcesses:
    """Those of `elasticdl controller --kubeconfig=...`."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self._kubectl, self._folder = kubectl, folder
        self._all: list[ControllerProcess] = []
        self._running: dict[str, ControllerProcess] = {}
        for _ in range(2):
            self._start()

    def kill_leader(self) -> str:
        lease = f"lease/{CONTROLLER}"
        name = self._kubectl("get", lease, "--ignore-not-found", "--output=jsonpath={.spec.holderIdentity}")
        if name not in self._running:
            # The lease of one that was killed has not expired yet.
            return ""
        self._running.pop(name).kill()
        self._start()
        return name

    def check(self) -> None:
        for each in self._all:
            assert "Traceback" not in each.log, each.log
        for each in self._running.values():
            assert each.process.poll() is None, each.log

    def end(self) -> None:
        for each in self._running.values():
            each.kill()

    def _start(self) -> None:
        name = f"controller-{len(self._all)}"
        process = ControllerProcess(name, folder=self._folder, namespace=self._kubectl.namespace)
        self._all.append(process)
        self._running[name] = process


@contextlib.contextmanager
def two_controllers(place: str, kubectl: Kubectl, folder: Path) -> Iterator[Controllers]:
    if place == "inside":
        with installed_controller() as installed:
            yield DeployedControllers(installed)
        return
    install_definitions()
    processes = ControllerProcesses(kubectl, folder)
    try:
        yield processes
    finally:
        processes.end()


class Machines:
    """Stopped one at a time, and never the first, where the batch server runs."""

    def __init__(self, kubectl: Kubectl, cluster: SelfMade, names: list[str]) -> None:
        self._kubectl, self._cluster, self.names = kubectl, cluster, names
        self.stopped = ""

    def stop(self, name: str) -> None:
        self._cluster.stop_node(name)
        self.stopped = name

    def start(self) -> None:
        """It takes pods some seconds later."""
        name, self.stopped = self.stopped, ""
        if name:
            self._cluster.start_node(name)

    def wait_for_all(self) -> None:
        self.start()
        wait_until(lambda: {*self.names} <= {*machines(self._kubectl)}, f"{self.names} take pods")


@pytest.fixture
def fleet(kubectl: Kubectl, own_cluster: SelfMade, three_machines: list[str]) -> Iterator[Machines]:
    found = Machines(kubectl, own_cluster, three_machines)
    yield found
    found.wait_for_all()


class FaultInjector:
    """Events of a seed. Each kind comes in turn, in an order and at a distance that are random; machines and leaders
    have times of their own.
    """

    def __init__(
        self, jobs: TrainingJobs, fleet: Machines, controllers: Controllers, source: random.Random
    ) -> None:
        self._jobs, self._fleet, self._controllers, self._source = jobs, fleet, controllers, source
        self._is_busy = False
        self._left: list[Callable[[], str]] = []

    def inject(self, seconds: float) -> None:
        begun = time.monotonic()
        due: list[tuple[float, Callable[[], tuple[str, float]]]] = [
            (0.0, self._kill_leader),
            (self._source.uniform(2.0, 8.0), self._change_machine),
            (self._source.uniform(2.0, 6.0), self._change_something),
        ]
        while True:
            due.sort(key=lambda event: event[0])
            at, event = due.pop(0)
            if at >= seconds:
                return
            time.sleep(max(0.0, begun + at - time.monotonic()))
            now = time.monotonic() - begun
            what, pause = event()
            print(f"{now:5.1f} s: {what}", flush=True)
            due.append((max(at + pause, time.monotonic() - begun), event))

    def stop(self) -> None:
        self._fleet.wait_for_all()
        self._jobs.kubectl("delete", "deployment", "busy", "--ignore-not-found", "--wait=false")

    # Each says what it has done, and in how many seconds it comes again.

    def _kill_leader(self) -> tuple[str, float]:
        name = self._controllers.kill_leader()
        return f"the leader {name} is killed" if name else "no controller leads", LEADER_SECONDS

    def _change_machine(self) -> tuple[str, float]:
        if name := self._fleet.stopped:
            self._fleet.start()
            return f"{name} is started", self._source.uniform(5.0, 15.0)
        name = self._source.choice(self._fleet.names[1:])
        self._fleet.stop(name)
        # Some come back before the cluster has given them up, after twelve seconds.
        return f"{name} is stopped", self._source.uniform(8.0, 30.0)

    def _change_something(self) -> tuple[str, float]:
        if not self._left:
            # The Deployment twice: it comes and goes.
            pods = [lambda: self._delete("master"), *[lambda: self._delete("worker")] * 2]
            self._left = [*pods, *[self._change_deployment] * 2]
            self._source.shuffle(self._left)
        return self._left.pop()(), self._source.uniform(2.0, 6.0)

    def _delete(self, role: str) -> str:
        found = sorted(self._jobs.kubectl.phases(f"app=elasticdl,elasticdl-replica-type={role}"))
        if not found:
            return f"there is no {role} to delete"
        name = self._source.choice(found)
        # Half of them are killed without notice.
        notice = self._source.choice(("", " without notice"))
        words = ("--grace-period=0", "--force") if notice else ()
        self._jobs.kubectl("delete", "pod", name, "--wait=false", "--ignore-not-found", *words)
        return f"{name} is deleted{notice}"

    def _change_deployment(self) -> str:
        kubectl = self._jobs.kubectl
        self._is_busy = not self._is_busy
        if not self._is_busy:
            kubectl("delete", "deployment", "busy", "--wait=false")
            return "the Deployment goes"
        kubectl("create", "--filename=-", text=json.dumps(service(REPLICAS, NEEDS)))
        return "the Deployment comes"


@pytest.mark.parametrize(("place", "seed"), _CASES)
def test_random_faults_leave_exact_audits_and_no_objects(
    place: str, seed: int, kubectl: Kubectl, fleet: Machines, tmp_path: Path
) -> None:
    with only_controller(), two_controllers(place, kubectl, tmp_path) as controllers:
        jobs = TrainingJobs.prepared(kubectl, needs=NEEDS)
        jobs.slow_down()
        for name in JOBS:
            jobs.create(name, 1, TOTAL, batch_seconds=1.0)
        jobs.wait_for_total(TOTAL, *JOBS)

        faults = FaultInjector(jobs, fleet, controllers, random.Random(seed))
        faults.inject(_SECONDS)
        faults.stop()
        # All of the jobs run again, with all that the cluster has.
        jobs.wait_for_total(TOTAL, *JOBS)
        jobs.release()
        for name in JOBS:
            jobs.ends_exactly(name)
        controllers.check()
        for name in JOBS:
            jobs.delete(name)
        assert kubectl("get", "tj") == ""
        selector = "--selector=app=elasticdl"
        assert kubectl("get", "pods,services,secrets,configmaps", selector, "--output=name") == ""
