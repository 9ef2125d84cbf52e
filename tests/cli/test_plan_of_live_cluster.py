"""`elasticdl plan` without a file reads the configured cluster: nodes, pods and the ranges in job records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.catalog.api_server import NAMESPACE, ApiServer

KEY = f"{NAMESPACE}/job"


def _node(name: str, cpu: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _plan(elasticdl: Any) -> dict[str, Any]:
    result = elasticdl("plan", "--json")
    assert result.code == 0, result.err
    found = {decision["job"]: decision for decision in json.loads(result.out)["decisions"]}
    return dict(found[KEY])


def _run(cluster: ApiServer, **flags: Any) -> None:
    """A job whose master and only worker run on the first node."""
    cluster.submitted(num_workers=1, worker_resource_request="cpu=1", **flags)
    cluster.master(phase="Running")
    cluster.worker(0)
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    changes = {
        "metadata": {"namespace": NAMESPACE},
        "spec": {"nodeName": "node-0", "containers": [container]},
    }
    cluster.change("pods", "job-edljob-worker-0", changes)


@pytest.fixture
def cluster(api: ApiServer) -> ApiServer:
    api.put("nodes", _node("node-0", "64"))
    api.put("nodes", _node("node-1", "64"))
    return api


def test_job_with_a_range_grows_to_its_maximum(elasticdl: Any, cluster: ApiServer) -> None:
    _run(cluster, min_workers=1, max_workers=4)
    decision = _plan(elasticdl)
    assert (decision["decision"], decision["size"]) == ("grow", 4)


def test_job_without_a_maximum_keeps_its_size(elasticdl: Any, cluster: ApiServer) -> None:
    _run(cluster)
    decision = _plan(elasticdl)
    assert (decision["decision"], decision["size"]) == ("hold", 1)


def test_reading_writes_nothing(elasticdl: Any, cluster: ApiServer) -> None:
    assert elasticdl("plan").code == 0
    assert {method for method, _, _ in cluster.asked} == {"GET"}
