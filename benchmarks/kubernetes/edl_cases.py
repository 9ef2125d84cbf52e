"""The two published experiments of PaddlePaddle EDL on a small cluster, and what the simulator predicts for them.

The workloads are `scenarios.edl_case1` and `edl_case2` on about a 130th of their machines: jobs that arrive one after
the other and outlast the experiment, alone in the cluster, or beside a service that shrinks and grows back. The
requests of a job's parameter servers are included in that of its master: only their room matters here.

What the simulator cannot know is measured first: the time from the creation of a job that is alone to its first
trainer, and how long a pod waits for room that trainers have to leave, in a full cluster. The latter includes the drain
and the cluster's scheduler, which retries a pod that does not fit after a second or two. Everything else is decided by
the planner and applied by the controller. The simulator's clock has whole seconds, so it gets tenths of a second
instead.

Compared are the mean time until a job trains, and the mean share of the CPUs that is requested by running or
terminating pods, over the whole experiment.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.kubernetes.elastic_jobs import PRIORITY, create_job, delete_jobs, is_pod_of, training_job
from benchmarks.kubernetes.place import Document, Place, Seen, image, load
from benchmarks.processes import wait_until
from benchmarks.report import Result
from elasticdl.catalog.kubernetes.cluster_state import machine_of, pod_of
from elasticdl.controller.controller import ControllerTiming
from elasticdl.scheduling.cluster import Machine
from elasticdl.scheduling.demand import DEFAULT_RESIZE_COST_SECONDS, RoleGroup
from elasticdl.scheduling.planner_settings import PlannerSettings
from elasticdl.simulator.engine import Simulation
from elasticdl.simulator.policies.elasticdl import PlannerPolicy
from elasticdl.simulator.work import LinearWork
from elasticdl.simulator.workload import CPU, Rules, Service, Workload, WorkloadJob

NAME = "elastic_cluster"
# Seconds of the simulator per second.
TENTHS = 10.0
WITHIN = 0.15
# In millicores. As in EDL's experiments, a job needs 51 CPUs to start, 10 of them for its minimum of trainers.
MASTER, TRAINER, MOST_TRAINERS = 1_250, 750, 12
REPLICA = 1_150
_TIMING = ControllerTiming()
# On a small cluster, a plan costs nothing.
REACTION = _TIMING.settle_seconds
# Longer than the time between two consecutive changes of pods with one cause.
QUIET_SECONDS = 4.0
# Far more than any job completes in the experiment.
_WORK_SECONDS = 1e9


@dataclass(frozen=True, kw_only=True)
class Case:
    """Jobs arrive `gap` seconds apart, the first at `first`. `replicas`: of the service, from which second on."""

    name: str
    jobs: int
    gap: float
    seconds: float
    first: float = 0.0
    replicas: tuple[tuple[float, int], ...] = ()

    def arrival(self, number: int) -> float:
        return self.first + number * self.gap


CASES = (
    Case(name="EDL case 1", jobs=5, gap=12.0, seconds=120.0),
    Case(
        name="EDL case 2",
        jobs=2,
        gap=8.0,
        seconds=220.0,
        first=15.0,
        replicas=((0.0, 8), (50.0, 6), (75.0, 4), (100.0, 2), (125.0, 4), (150.0, 6), (175.0, 8)),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Seconds from the creation of a job until it trains, and from the decision to drain trainers until a pod has their
    room.
    """

    start: float
    stop: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    waiting: float
    utilisation: float


def run(place: Place, *, quick: bool, repeat: int) -> list[Result]:
    machines = _machines(place)
    calibration = _calibrate(place, times=1 if quick else 4)
    results = []
    for case in CASES:
        short = dataclasses.replace(case, seconds=20.0, jobs=1, replicas=case.replicas[:1]) if quick else case
        measured = _measure(place, short, machines)
        predicted = simulate(short, machines, calibration)
        note = (
            f"peer: the simulator, with {calibration.start:.1f} s until a job alone trains and "
            f"{calibration.stop:.1f} s until another pod has the room of trainers; {load()}"
        )
        for what, unit, ours, theirs in (
            ("mean time until a job trains", "s", measured.waiting, predicted.waiting),
            ("utilisation", "%", 100 * measured.utilisation, 100 * predicted.utilisation),
        ):
            ratio = ours / theirs
            results.append(
                Result(
                    benchmark=NAME,
                    case=f"{short.name}, scaled down: {what}",
                    unit=unit,
                    us=ours,
                    peer=theirs,
                    compared=f"{ratio:.2f}×",
                    target=f"within {WITHIN:.0%}",
                    passed=None if quick else abs(ratio - 1.0) <= WITHIN,
                    note=note,
                )
            )
    return results


# -- the simulator's side ------------------------------------------------------------------------------------


def simulate(case: Case, machines: Sequence[Machine], calibration: Calibration) -> Outcome:
    """What the simulator predicts, with the controller's own planner and delays."""
    groups = (
        RoleGroup(role="master", minimum=1, maximum=1, requests={CPU: MASTER}),
        RoleGroup(role="worker", minimum=1, maximum=MOST_TRAINERS, requests={CPU: TRAINER}),
    )
    workload = Workload(
        name=case.name,
        machines=tuple(machines),
        jobs=tuple(
            WorkloadJob(
                name=f"job-{number}",
                submitted_at_seconds=case.arrival(number) * TENTHS,
                groups=groups,
                requested=MOST_TRAINERS,
                work=LinearWork(seconds=_WORK_SECONDS * TENTHS),
            )
            for number in range(case.jobs)
        ),
        services=(
            Service(
                name="service",
                requests={CPU: REPLICA},
                targets=tuple((at * TENTHS, count) for at, count in case.replicas),
            ),
        )
        if case.replicas
        else (),
        rules=Rules(
            interval=_TIMING.resync_seconds * TENTHS,
            reacts=True,
            reaction=REACTION * TENTHS,
            resize_cost=DEFAULT_RESIZE_COST_SECONDS * TENTHS,
            pod_start=max(calibration.start - REACTION, 0.0) * TENTHS,
            pod_stop=calibration.stop * TENTHS,
        ),
        horizon=case.seconds * TENTHS,
    )
    usual = PlannerSettings()
    settings = dataclasses.replace(
        usual,
        horizon_seconds=usual.horizon_seconds * TENTHS,
        unknown_work_seconds=usual.unknown_work_seconds * TENTHS,
    )
    policy = PlannerPolicy(settings=settings, interval_seconds=_TIMING.resync_seconds * TENTHS)
    found = Simulation(workload, policy).run()
    return Outcome(
        waiting=statistics.fmean(job.waiting_seconds(found.end) for job in found.jobs) / TENTHS,
        utilisation=found.average("utilisation"),
    )


# -- the cluster's side --------------------------------------------------------------------------------------


def _machines(place: Place) -> list[Machine]:
    """The resources as the planner sees them, without the pods of others."""
    nodes = json.loads(place.kubectl("get", "nodes", "--output=json"))["items"]
    names = set(place.machines())
    return [machine_of(node) for node in nodes if node["metadata"]["name"] in names]


def _calibrate(place: Place, *, times: int) -> Calibration:
    found = [_start_and_stop(place, number) for number in range(times)]
    starts, stops = zip(*found, strict=True)
    # Means, since means are compared.
    return Calibration(start=statistics.fmean(starts), stop=statistics.fmean(stops))


def _start_and_stop(place: Place, number: int) -> tuple[float, float]:
    alone, other, urgent = f"alone-{number}", f"other-{number}", f"urgent-{number}"
    since, begun = place.now(), _create(place, alone)
    _wait_quiet(place)
    start = _trains_at(alone, place.seen()[since:], time.monotonic()) - begun
    # Together, both fill the cluster.
    _create(place, other)
    _wait_quiet(place)
    since, path = place.now(), f"/api/v1/namespaces/{place.namespace}/pods"
    asked = place.create(
        path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": urgent}, **_replica()}
    )
    bound = place.wait_for(urgent, lambda seen: seen.scheduled, "has room", since=since)
    _wait_quiet(place)
    place.delete("pod", urgent)
    delete_jobs(place)
    _wait_quiet(place)
    return start, max(bound.seconds - asked - REACTION, 0.0)


def _wait_quiet(place: Place) -> None:
    """Waits until no pod has changed for a while."""
    begun = time.monotonic()

    def is_quiet() -> bool:
        last = max([begun, *(seen.seconds for seen in place.seen()[-1:])])
        return time.monotonic() - last > QUIET_SECONDS

    wait_until(is_quiet, "no pod changes", every=0.5)


def _create(place: Place, name: str) -> float:
    trainer, master = {"cpu": f"{TRAINER}m"}, {"cpu": f"{MASTER}m"}
    return create_job(place, training_job(name, low=1, high=MOST_TRAINERS, trainer=trainer, master=master))


def _measure(place: Place, case: Case, machines: Sequence[Machine]) -> Outcome:
    since, created = place.now(), {}
    service = "service"
    events = [(case.arrival(number), f"job-{number}", 0) for number in range(case.jobs)]
    events += [(at, service, count) for at, count in case.replicas]
    begun = time.monotonic()
    if case.replicas:
        place.create(
            f"/apis/apps/v1/namespaces/{place.namespace}/deployments",
            _deployment(service, case.replicas[0][1]),
        )
    for at, name, count in sorted(events):
        time.sleep(max(0.0, begun + at - time.monotonic()))
        if name != service:
            created[name] = _create(place, name)
        elif at > 0:
            place.change(
                f"/apis/apps/v1/namespaces/{place.namespace}/deployments/{service}",
                {"spec": {"replicas": count}},
            )
    time.sleep(max(0.0, begun + case.seconds - time.monotonic()))
    seen = place.seen()[since:]
    end = begun + case.seconds
    if case.replicas:
        place.kubectl("delete", "deployment", service, "--wait=false")
    delete_jobs(place)
    return Outcome(
        waiting=statistics.fmean(_trains_at(name, seen, end) - at for name, at in created.items()),
        utilisation=utilisation(seen, begun, end) / sum(machine.allocatable[CPU] for machine in machines),
    )


def _trains_at(name: str, seen: Sequence[Seen], end: float) -> float:
    """Returns when its master and its first trainer both ran; the end, if they never did."""
    first = dict.fromkeys(("master", "worker"), end)
    for change in seen:
        for role in first:
            if is_pod_of(name, role, change) and change.phase == "Running":
                first[role] = min(first[role], change.seconds)
    return max(first.values())


def utilisation(seen: Sequence[Seen], begun: float, end: float) -> float:
    """Returns the millicores requested by running or terminating pods, on average from `begun` to `end`."""
    holds: dict[str, tuple[float, int]] = {}
    total = 0.0
    for change in seen:
        if not begun <= change.seconds <= end:
            continue
        ended = change.ended or change.phase in ("Succeeded", "Failed")
        if change.name in holds and ended:
            since, request = holds.pop(change.name)
            total += (change.seconds - since) * request
        elif change.name not in holds and not ended and change.phase == "Running":
            holds[change.name] = (change.seconds, pod_of(change.pod).requests.get(CPU, 0))
    total += sum((end - since) * request for since, request in holds.values())
    return total / (end - begun)


def _replica() -> Document:
    """The spec of a pod that takes room from trainers, and terminates at once."""
    container = {
        "name": "main",
        "image": image("light"),
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": f"{REPLICA}m"}},
    }
    return {
        "spec": {"priorityClassName": PRIORITY, "terminationGracePeriodSeconds": 0, "containers": [container]}
    }


def _deployment(name: str, replicas: int) -> Document:
    labels = {"deployment": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, **_replica()},
        },
    }
