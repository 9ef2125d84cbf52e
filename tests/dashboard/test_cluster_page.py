"""The cluster: machines with their pods, why jobs wait, decisions, and what one more job would mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.dashboard.job_metrics import exposition_of
from elasticdl.dashboard.prometheus_text import Exposition
from elasticdl.jobs.status import JobStatus
from tests.catalog.api_server import RUNNING, ApiServer
from tests.catalog.api_server import api as api
from tests.dashboard.client import Client
from tests.dashboard.stored_jobs import store_job

Serve = Callable[..., Client]


def put_node(api: ApiServer, name: str, *, cpu: str = "8", **spec: Any) -> None:
    api.put(
        "nodes",
        {
            "metadata": {"name": name, "labels": {}},
            "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": "16Gi"}},
        },
    )


def put_pod(api: ApiServer, name: str, *, node: str = "", job: str = "", cpu: str = "1") -> None:
    labels = (
        {"app": "elasticdl", "elasticdl-job-name": job, "elasticdl-replica-type": "worker"} if job else {}
    )
    spec = {
        "containers": [{"resources": {"requests": {"cpu": cpu}}}],
        **({"nodeName": node} if node else {}),
    }
    api.put(
        "pods",
        {
            "metadata": {"name": name, "namespace": "lab", "labels": labels},
            "spec": spec,
            "status": {"phase": "Running" if node else "Pending"},
        },
    )


def put_training_job(api: ApiServer, name: str, status: dict[str, Any], *, namespace: str = "lab") -> None:
    api.has_training_jobs = True
    api.put(
        "trainingjobs",
        {
            "metadata": {"name": name, "namespace": namespace, "labels": {}},
            "spec": {"trainer": {"min-instance": 2, "max-instance": 6}},
            "status": status,
        },
    )


@pytest.fixture
def cluster(home: Path, api: ApiServer) -> ApiServer:
    """Two machines of eight cores, a job with four workers, one pod of another owner."""
    put_node(api, "node-0")
    put_node(api, "node-1", unschedulable=True)
    for number in range(4):
        put_pod(api, f"clicks-{number}", node=f"node-{number % 2}", job="clicks", cpu="2")
    put_pod(api, "web", node="node-0")
    return api


def test_machines_have_states_requests_and_tiles(cluster: ApiServer, serve: Serve) -> None:
    document = serve().get("/api/cluster").json()
    first = document["machine/node-0"]
    assert (first["state"], first["resources"]["cpu"]) == ("ready", [5.0, 8.0])
    assert first["tiles"] == [
        {"job": "lab/clicks", "role": "worker", "count": 2},
        {"job": "other", "role": "", "count": 1},
    ]
    assert document["machine/node-1"]["state"] == "cordoned"
    assert document["summary"]["machines"] == 2
    assert document["summary"]["open"] == 1
    assert document["summary"]["resources"]["cpu"] == {"requested": 9.0, "total": 16.0}
    assert document["utilization"]["shares"]["cpu"][-1] == round(9 / 16, 4)


def test_queue_says_why_jobs_wait(cluster: ApiServer, serve: Serve) -> None:
    put_training_job(
        cluster,
        "images",
        {
            "phase": "Pending",
            "message": "Waits: its minimum does not fit.",
            "conditions": [{"type": "Admitted", "status": "False"}],
            "trainer": {"min": 2, "max": 6},
        },
    )
    put_training_job(cluster, "new", {})
    put_training_job(cluster, "done", {"phase": "Succeeded"})
    put_pod(cluster, "plain-worker-0", job="plain")
    queue = {each["job"]: each for each in serve().get("/api/cluster").json()["queue"]}
    assert queue["images"]["reason"] == "Waits: its minimum does not fit."
    assert queue["images"]["wants"] == "2–6"
    assert queue["new"]["reason"] == "no controller has seen it yet"
    assert queue["plain"]["reason"] == "plain-worker-0 waits for a machine."
    assert "done" not in queue


def test_decisions_of_all_jobs_are_sorted_by_time(cluster: ApiServer, serve: Serve) -> None:
    for name, moment, sentence in (
        ("a", "2026-11-16T05:35:09Z", "older"),
        ("b", "2026-11-16T05:36:09Z", "newer"),
    ):
        decision = {"time": moment, "kind": "Shrink", "sentence": sentence, "from": 4, "to": 2}
        put_training_job(cluster, name, {"phase": "Running", "decisions": [decision]})
    decisions = serve().get("/api/cluster").json()["decisions"]
    assert [(each["job"], each["sentence"], each["before"], each["after"]) for each in decisions] == [
        ("b", "newer", 4, 2),
        ("a", "older", 4, 2),
    ]


def test_status_of_a_later_version_does_not_hide_the_job(cluster: ApiServer, serve: Serve) -> None:
    put_training_job(cluster, "later", {"version": 99, "phase": "Running"})
    jobs = serve().get("/api/cluster").json()["training_jobs"]
    assert [each["job"] for each in jobs] == ["later"]


def test_what_if_job_fits(cluster: ApiServer, serve: Serve) -> None:
    answer = serve().get("/api/cluster/what_if?min=1&max=2&cpu=1&memory=1Gi").json()
    assert answer["job"]["decision"] == "Admit"
    assert answer["job"]["size"] >= 1
    assert answer["others"] == []


def test_what_if_job_has_no_room(cluster: ApiServer, serve: Serve) -> None:
    answer = serve().get("/api/cluster/what_if?min=1&cpu=64").json()
    assert answer["job"]["decision"] == "Reject"
    assert "does not fit" in answer["job"]["reason"]


@pytest.mark.parametrize(
    "query", ["", "min=0&cpu=1", "min=2&max=1&cpu=1", "cpu=none", "cpu=1&min=x", "cpu=1&priority=-1"]
)
def test_what_if_that_cannot_be_understood(cluster: ApiServer, serve: Serve, query: str) -> None:
    reply = serve().get(f"/api/cluster/what_if?{query}")
    assert reply.status in (400, 404)
    assert reply.json()["error"]


def test_changed_machine_alone_is_sent_again(cluster: ApiServer, serve: Serve) -> None:
    events = serve().stream("/api/cluster/stream")
    whole = next(events)
    assert whole.kind == "whole"
    assert "machine/node-1" in whole.data
    put_pod(cluster, "late", node="node-0", job="clicks")
    changes = next(event for event in events if "machine/node-0" in event.data)
    assert changes.kind == "change"
    assert "machine/node-1" not in changes.data
    events.close()


def test_cluster_page_without_cluster_returns_404_with_reason(home: Path, serve: Serve) -> None:
    reply = serve().get("/api/cluster")
    assert reply.status == 404
    assert "No cluster is configured here." in reply.json()["error"]
    events = serve().stream("/api/cluster/stream")
    assert "No cluster is configured here." in json.dumps(next(events).data)
    events.close()


def test_cluster_needs_the_token(cluster: ApiServer, serve: Serve) -> None:
    client = serve()
    assert client.send("GET", "/api/cluster").status == 401
    assert client.send("GET", "/api/cluster/what_if?cpu=1").status == 401


def test_nothing_is_written_to_the_cluster(cluster: ApiServer, serve: Serve) -> None:
    client = serve()
    client.get("/api/cluster")
    client.get("/api/cluster/what_if?cpu=1")
    assert {method for method, _, _ in cluster.asked} == {"GET"}


def test_metrics_of_active_jobs_are_one_document(home: Path, api: ApiServer, serve: Serve) -> None:
    store_job(home, "ended")
    api.submitted()
    api.master(**RUNNING)
    api.said(state="running", targets={"worker": 2}, samples_done=300, samples_total=1000)
    reply = serve().get("/api/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text = reply.body.decode()
    assert 'elasticdl_samples_done{job="job",namespace="lab"} 300' in text
    assert "ended" not in text


def test_metric_of_several_jobs_is_one_block() -> None:
    out = Exposition()
    for name in ("a", "b"):
        out.add(exposition_of(JobStatus(job=name)))
    assert [line.partition(" ")[2] for line in out.text().splitlines() if line.startswith("# TYPE")] == [
        "TYPE elasticdl_job_info gauge"
    ]
    assert out.text().count("elasticdl_job_info{") == 2
