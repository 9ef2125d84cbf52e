"""What the controller's decisions cost with 1,000 TrainingJobs and 10,000 pods: the engine with the documents of an API
server, without the server.
The documents come as JSON texts, as lists and watches have them, and reading them counts. A first plan is that of a
controller that has just been started: everything is there already. Steady: all masters write their report every two
seconds, and a step follows each second. All figures are time of the processor.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.report import Result
from elasticdl.controller.cached_documents import slim_node, slim_pod, slim_record, slim_training_job
from elasticdl.controller.engine import Engine, Step
from elasticdl.controller.reconcile.actions import StartJob, WriteStatus
from elasticdl.jobs.job_record import status_entry
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus, NodeReport, RunState
from elasticdl.platforms.kubernetes.manifests import job_object
from elasticdl.platforms.kubernetes.pods.manifest import master_pod, node_pod
from elasticdl.platforms.platform import NodeRequest

NAME = "controller_scale"
JOBS, WORKERS, PODS_ON_A_MACHINE = 1_000, 9, 25
_NOW = 1_700_000_000.0
_WRITE_SECONDS = 2.0
# Every job writes its progress once in a minute.
_STEADY_SECONDS = 60
_SLIM: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "Node": slim_node,
    "Pod": slim_pod,
    "ConfigMap": slim_record,
    "TrainingJob": slim_training_job,
}


def run(*, quick: bool, repeat: int) -> list[Result]:
    jobs = 20 if quick else JOBS
    measured = [measure(jobs) for _ in range(1 if quick else min(repeat, 3))]
    size = f"{jobs:,} jobs, {jobs * (WORKERS + 1):,} pods"
    rows = (
        ("first plan of a new controller", "s", "first", 30.0),
        ("one more job → decision", "s", "change", 2.0),
        ("steady, share of a core", "%", "steady", 20.0),
        ("peak memory", "MB", "memory", 500.0),
    )
    found = []
    for case, unit, name, limit in rows:
        value = statistics.median(getattr(each, name) for each in measured)
        found.append(
            Result(
                benchmark=NAME,
                case=f"{case}: {size}",
                unit=unit,
                us=value,
                target=f"< {limit:g} {unit}",
                passed=None if quick else value < limit,
            )
        )
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    first: float
    change: float
    steady: float
    memory: float


def measure(jobs: int) -> Measured:
    texts, specs = _running_cluster(jobs)
    engine = Engine()
    begun = time.process_time()
    for text in texts:
        _apply(engine, text)
    step = engine.step(_NOW)
    first = time.process_time() - begun
    _settle(engine, step)

    begun = time.process_time()
    _apply(engine, json.dumps(_training_job("one-more", 1, 1)))
    step = engine.step(_NOW + 1)
    change = time.process_time() - begun
    started = [each for found in step.actions.values() for each in found if isinstance(each, StartJob)]
    assert [each.job.name for each in started] == ["one-more"], started
    steady = _steady(engine, specs)
    return Measured(
        first=first,
        change=change,
        steady=100 * steady,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _steady(engine: Engine, specs: list[JobSpec]) -> float:
    """Seconds of the processor in a second."""
    writers = round(len(specs) / _WRITE_SECONDS)
    records = [_record(spec, done=1) for spec in specs]
    spent = 0.0
    for second in range(_STEADY_SECONDS):
        chosen = [(second * writers + number) % len(specs) for number in range(writers)]
        texts = []
        for number in chosen:
            data = {**records[number]["data"], **_report(specs[number], done=1000 + second)}
            texts.append(json.dumps({**records[number], "data": data}))
        begun = time.process_time()
        for text in texts:
            _apply(engine, text)
        step = engine.step(_NOW + 60 + second)
        _settle(engine, step)
        spent += time.process_time() - begun
    return spent / _STEADY_SECONDS


def _settle(engine: Engine, step: Step) -> None:
    """Statuses are written, and come back as the API server sends them."""
    for job_id, actions in step.actions.items():
        for action in actions:
            if isinstance(action, WriteStatus):
                document = engine.view.jobs[job_id].document
                _apply(engine, json.dumps({**document, "status": action.status.to_document()}))
        engine.carried_out(job_id, actions)


def _apply(engine: Engine, text: str) -> None:
    document = json.loads(text)
    engine.apply(document["kind"], _SLIM[document["kind"]](document))


# -- documents ---------------------------------------------------------------------------------------------------


def _running_cluster(jobs: int) -> tuple[list[str], list[JobSpec]]:
    """All objects of a cluster in which every job runs with its maximum, and there is room for one more."""
    pods = jobs * (WORKERS + 1)
    documents = [_node(number) for number in range(pods // PODS_ON_A_MACHINE + 2)]
    specs = []
    engine = Engine()
    # The specs are those that a controller would start the jobs with.
    for number in range(jobs):
        job = _training_job(f"job-{number:04d}", 2, WORKERS)
        engine.apply("TrainingJob", job)
        documents.append(job)
    for document in documents:
        if document["kind"] == "Node":
            engine.apply("Node", document)
    for actions in engine.step(_NOW).actions.values():
        specs += [each.spec for each in actions if isinstance(each, StartJob)]
    place = 0
    for spec in specs:
        documents.append(_record(spec, done=1))
        requests = [
            NodeRequest(name=f"worker-{each}", role="worker", command=("x",)) for each in range(WORKERS)
        ]
        for pod in (master_pod(spec), *(node_pod(spec, request) for request in requests)):
            documents.append(_running(pod, f"node-{place // PODS_ON_A_MACHINE}"))
            place += 1
    return [json.dumps(document) for document in documents], specs


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {"zone": "one"}},
        "status": {
            "allocatable": {"cpu": str(PODS_ON_A_MACHINE), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _training_job(name: str, low: int, high: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "apiVersion": "elasticdl.org/v1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2023-11-14T22:13:20Z",
        },
        "spec": {
            "image": "image:1",
            "fault_tolerant": True,
            "trainer": {
                "entrypoint": "python3 train.py",
                "min-instance": low,
                "max-instance": high,
                "resources": resources,
            },
            "master": {"resources": resources},
        },
    }


def _record(spec: JobSpec, *, done: int) -> dict[str, Any]:
    record = job_object(spec)
    record["metadata"] |= {
        "uid": f"record-{spec.job_name}",
        "resourceVersion": str(done),
        "ownerReferences": [{"uid": spec.job_name}],
    }
    record["data"] |= _report(spec, done=done)
    return record


def _report(spec: JobSpec, *, done: int) -> dict[str, str]:
    nodes = tuple(
        NodeReport(name=f"worker-{number}", role="worker", phase="running", has_joined=True)
        for number in range(WORKERS)
    )
    status = JobStatus(
        job=spec.job_name,
        state=RunState.RUNNING,
        nodes=nodes,
        desired_nodes={"worker": WORKERS},
        start_time=_NOW,
        samples_done=done,
        samples_desired=1_000_000,
        step=done,
        losses=tuple((step, 0.5) for step in range(100)),
    )
    return status_entry(status)


def _running(pod: dict[str, Any], machine: str) -> dict[str, Any]:
    [container] = pod["spec"]["containers"]
    name = pod["metadata"]["name"]
    pod["metadata"] |= {"uid": name, "resourceVersion": "3"}
    pod["spec"]["nodeName"] = machine
    state = {"running": {"startedAt": "2023-11-14T22:13:20Z"}}
    statuses = [{"name": container["name"], "state": state, "ready": True}]
    return {**pod, "status": {"phase": "Running", "containerStatuses": statuses}}
