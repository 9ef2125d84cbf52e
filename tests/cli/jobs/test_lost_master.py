"""The machine of a master is lost: its pod looks as if it ran for minutes, but the job is interrupted at once, and can
be resumed.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.catalog.api_server import MASTER, RUNNING, UNREACHABLE, ApiServer


@pytest.fixture
def lost(api: ApiServer) -> ApiServer:
    api.submitted()
    api.said(state="running")
    api.master(**UNREACHABLE)
    api.stuck.add(MASTER)
    return api


def test_status_of_job_with_lost_master_is_interrupted(elasticdl: Any, lost: ApiServer) -> None:
    shown = elasticdl("jobs", "status", "job").out
    assert shown == "Job job: interrupted. The master: node-0, its machine, does not answer.\n"


def test_job_without_master_cannot_be_stopped(elasticdl: Any, lost: ApiServer) -> None:
    result = elasticdl("jobs", "stop", "job")
    assert result.code == 2
    assert "Job job is interrupted" in result.err
    assert "`elasticdl jobs resume job --namespace=lab` brings it back" in result.err


def test_master_lost_during_stop_is_reported(elasticdl: Any, api: ApiServer) -> None:
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("PATCH", "configmaps"):
            api.master(**UNREACHABLE)

    api.meanwhile = meanwhile
    result = elasticdl("jobs", "stop", "job")
    assert result.code == 2
    assert "The master of job job is lost: node-0, its machine, does not answer." in result.err


def test_resume_restarts_lost_master(elasticdl: Any, lost: ApiServer) -> None:
    before = lost.objects["pods", MASTER]["metadata"]["uid"]
    result = elasticdl("jobs", "resume", "job")
    assert result.out == "Job job: its master is started again.\n", result.err
    ((name, options),) = lost.deletions
    assert (name, options["gracePeriodSeconds"], options["preconditions"]) == (MASTER, 0, {"uid": before})
    assert lost.objects["pods", MASTER]["metadata"]["uid"] != before


def test_delete_removes_job_with_unreachable_pods(elasticdl: Any, lost: ApiServer) -> None:
    """No kubelet confirms their end; those of the unreachable machine are force-deleted."""
    lost.worker(0, conditions=UNREACHABLE["conditions"])
    lost.stuck.add("job-edljob-worker-0")
    result = elasticdl("jobs", "delete", "job")
    assert result.out == "Job job deleted.\n", result.err
    assert f"Pod {MASTER} is removed by force: node-0 does not answer." in result.err
    assert lost.objects == {}
