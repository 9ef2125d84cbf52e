"""The objects of a cluster with 1,000 running TrainingJobs and 10,000 pods, as an API server returns them."""

from __future__ import annotations

from typing import Any

from elasticdl.controller.engine import Engine
from elasticdl.controller.reconcile.actions import StartJob
from elasticdl.jobs.job_record import status_entry
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus, NodeReport, RunState
from elasticdl.platforms.kubernetes.manifests import job_object
from elasticdl.platforms.kubernetes.pods.manifest import master_pod, node_pod
from elasticdl.platforms.platform import NodeRequest

Document = dict[str, Any]
JOBS, WORKERS, PODS_ON_A_MACHINE = 1_000, 9, 25
NOW = 1_700_000_000.0
# Interval of a master's reports.
WRITE_SECONDS = 2.0


def running_cluster(jobs: int) -> tuple[list[Document], list[JobSpec]]:
    """All objects of a cluster in which every job has its maximum size and one more job fits."""
    pods = jobs * (WORKERS + 1)
    documents = [machine(number) for number in range(pods // PODS_ON_A_MACHINE + 2)]
    specs = []
    engine = Engine()
    # The specs with which a controller would start the jobs.
    for number in range(jobs):
        job = training_job(f"job-{number:04d}", 2, WORKERS)
        engine.apply("TrainingJob", job)
        documents.append(job)
    for document in documents:
        if document["kind"] == "Node":
            engine.apply("Node", document)
    for actions in engine.step(NOW).actions.values():
        specs += [each.spec for each in actions if isinstance(each, StartJob)]
    place = 0
    for spec in specs:
        documents.append(job_record(spec, done=1))
        requests = [
            NodeRequest(name=f"worker-{each}", role="worker", command=("x",)) for each in range(WORKERS)
        ]
        for pod in (master_pod(spec), *(node_pod(spec, request) for request in requests)):
            documents.append(running_pod(pod, f"node-{place // PODS_ON_A_MACHINE}"))
            place += 1
    return documents, specs


def machine(number: int) -> Document:
    name = f"node-{number}"
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {"zone": "one"}},
        "status": {
            "allocatable": {"cpu": str(PODS_ON_A_MACHINE), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def training_job(name: str, low: int, high: int) -> Document:
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


def job_record(spec: JobSpec, *, done: int) -> Document:
    record = job_object(spec)
    record["metadata"] |= {
        "uid": f"record-{spec.job_name}",
        "resourceVersion": str(done),
        "ownerReferences": [{"uid": spec.job_name}],
    }
    record["data"] |= report(spec, done=done)
    return record


def report(spec: JobSpec, *, done: int) -> dict[str, str]:
    nodes = tuple(
        NodeReport(name=f"worker-{number}", role="worker", phase="running", has_joined=True)
        for number in range(WORKERS)
    )
    status = JobStatus(
        job=spec.job_name,
        state=RunState.RUNNING,
        nodes=nodes,
        desired_nodes={"worker": WORKERS},
        start_time=NOW,
        samples_done=done,
        samples_desired=1_000_000,
        step=done,
        losses=tuple((step, 0.5) for step in range(100)),
    )
    return status_entry(status)


def running_pod(pod: Document, machine: str) -> Document:
    [container] = pod["spec"]["containers"]
    name = pod["metadata"]["name"]
    pod["metadata"] |= {"uid": name, "resourceVersion": "3"}
    pod["spec"]["nodeName"] = machine
    state = {"running": {"startedAt": "2023-11-14T22:13:20Z"}}
    statuses = [{"name": container["name"], "state": state, "ready": True}]
    return {**pod, "status": {"phase": "Running", "containerStatuses": statuses}}
