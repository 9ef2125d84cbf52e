"""Objects of a small cluster as the API server returns them, and a controller's engine that sees them."""

from __future__ import annotations

import dataclasses
from typing import Any

from elasticdl.controller.engine import Engine, Step
from elasticdl.controller.reconcile.actions import Action, StartJob, WriteDesired, WriteStatus
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.job_record import desired_entry, new_record, status_entry
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus, NodeReport, RunState
from elasticdl.jobs.training_job.status import TrainingJobStatus
from elasticdl.platforms.kubernetes.naming import labels, node_labels, record_name

NOW = 1_700_000_000.0
Document = dict[str, Any]


def node(
    name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", ready: bool = True
) -> Document:
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def training_job(
    name: str = "one",
    *,
    low: int = 1,
    high: int = 3,
    namespace: str = "default",
    status: TrainingJobStatus | None = None,
    **fields: Any,
) -> Document:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec = {
        "image": "image:1",
        "fault_tolerant": True,
        "trainer": {
            "entrypoint": "python3 train.py",
            "min-instance": low,
            "max-instance": high,
            "resources": resources,
        },
        "master": {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
    }
    return {
        "apiVersion": "elasticdl.org/v1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2023-11-14T22:13:20Z",
        },
        "spec": {**spec, **fields},
        **({"status": status.to_document()} if status is not None else {}),
    }


def with_model(**fields: Any) -> Document:
    """A job with a model definition: its master has checkpoints to save."""
    document = training_job(high=3, **fields)
    resources = {"cpu": "1", "memory": "1Gi"}
    for name in ("image", "trainer", "master", "fault_tolerant"):
        del document["spec"][name]
    document["spec"]["job"] = {
        "model": {"model_zoo": "/zoo", "model_def": "a.b.c"},
        "data": {"training_data": "/data"},
        "nodes": {"min_workers": 1, "max_workers": 3, "worker_resource_request": resources},
        "cluster": {"image_name": "image:1"},
    }
    return document


def record(
    spec: JobSpec,
    *,
    owner: str = "",
    report: JobStatus | None = None,
    **desired: Any,
) -> Document:
    namespace = spec.cluster.namespace
    data = new_record(spec)
    if report is not None:
        data |= status_entry(report)
    if desired:
        data |= desired_entry(Desired(**desired))
    return {
        "kind": "ConfigMap",
        "metadata": {
            "name": record_name(spec.job_name),
            "namespace": namespace,
            "uid": f"record-{spec.job_name}",
            "resourceVersion": "9",
            "labels": labels(spec.job_name, "job"),
            "ownerReferences": [{"uid": owner or f"uid-{namespace}-{spec.job_name}"}],
        },
        "data": data,
    }


def pod(spec: JobSpec, name: str, *, machine: str = "m0", phase: str = "Running") -> Document:
    """`name`: of the node, such as worker-0."""
    role = name.rpartition("-")[0]
    state: Document = {"running": {"startedAt": "2023-11-14T22:13:20Z"}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{spec.job_name}-{name}",
            "namespace": spec.cluster.namespace,
            "uid": f"pod-{spec.job_name}-{name}",
            "resourceVersion": "3",
            "labels": node_labels(spec.job_name, name, 0),
        },
        "spec": {
            "nodeName": machine,
            "containers": [
                {
                    "name": role,
                    "resources": {
                        "requests": {
                            "cpu": "500m" if role == "master" else "1",
                            "memory": "1Gi",
                        }
                    },
                }
            ],
        },
        "status": {"phase": phase, "containerStatuses": [{"name": role, "state": state}]},
    }


def report(workers: int, *, state: RunState = RunState.RUNNING, **fields: Any) -> JobStatus:
    nodes = tuple(
        NodeReport(name=f"worker-{number}", role="worker", phase="running", has_joined=True)
        for number in range(workers)
    )
    return JobStatus(
        job="one",
        state=state,
        nodes=nodes,
        desired_nodes={"worker": workers},
        start_time=NOW,
        **fields,
    )


class FakeCluster:
    """An engine and the objects that it has been shown. Nothing is carried out by itself."""

    def __init__(self, *, machines: int = 1, engine: Engine | None = None, **node_fields: str) -> None:
        self.engine = engine or Engine()
        for number in range(machines):
            self.show(node(f"m{number}", **node_fields))  # type: ignore[arg-type]

    def show(self, *documents: Document) -> None:
        for document in documents:
            self.engine.apply(document["kind"], document)

    def remove(self, document: Document) -> None:
        self.engine.apply(document["kind"], document, gone=True)

    def step(self, now: float = NOW) -> Step:
        return self.engine.step(now)

    def actions(self, name: str = "one", now: float = NOW) -> tuple[Action, ...]:
        return self.step(now).actions.get(f"elasticdl.org/default/{name}", ())

    def started(self, *documents: Document) -> dict[str, JobSpec]:
        """Shows TrainingJobs and returns the specs of those that are to be started."""
        self.show(*documents)
        found = {}
        for actions in self.step().actions.values():
            for each in actions:
                if isinstance(each, StartJob):
                    found[each.job.name] = each.spec
        return found

    def run(self, document: Document, *, workers: int | None = None, machine: str = "m0") -> JobSpec:
        """Starts a job and shows what its master then makes of it."""
        spec = self.started(document)[document["metadata"]["name"]]
        count = spec.nodes.num_workers if workers is None else workers
        self.show(
            record(spec, report=dataclasses.replace(report(count), job=spec.job_name)),
            pod(spec, "master-0", machine=machine),
            *(pod(spec, f"worker-{number}", machine=machine) for number in range(count)),
        )
        return spec


def with_status(document: Document, status: TrainingJobStatus) -> Document:
    return {**document, "status": status.to_document()}


def show_record(cluster: FakeCluster, spec: JobSpec, desired: Desired, status: JobStatus) -> None:
    cluster.show(
        record(
            spec,
            report=status,
            generation=desired.generation,
            nodes=desired.nodes,
            pause=desired.pause,
        )
    )


def of_kind(kind: type, actions: tuple[Action, ...]) -> list[Any]:
    return [each for each in actions if isinstance(each, kind)]


def status_of(actions: tuple[Action, ...]) -> TrainingJobStatus:
    [write] = of_kind(WriteStatus, actions)
    status: TrainingJobStatus = write.status
    return status


def desired_of(actions: tuple[Action, ...]) -> Any:
    [write] = of_kind(WriteDesired, actions)
    return write.desired
