"""Which pods are removed by force, and when."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.catalog.kubernetes import pod_removal
from elasticdl.catalog.kubernetes.pod_removal import overdue
from tests.catalog.api_server import RUNNING, UNREACHABLE, ApiServer

LEAVING = {"name": "w", "deletionTimestamp": "2026-11-16T05:35:39Z", "deletionGracePeriodSeconds": 30}


@pytest.mark.parametrize(
    ("status", "seconds", "wanted"),
    [(RUNNING, 0, False), (RUNNING, 35, False), (RUNNING, 36, True), (UNREACHABLE, 0, True)],
)
def test_when_nobody_answers_or_its_time_is_over(status: Any, seconds: float, wanted: bool) -> None:
    assert overdue({"metadata": LEAVING, "status": status}, seconds=seconds) is wanted


def test_who_waits_is_told_what_for(elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_removal, "_SILENT_SECONDS", 0.0)
    api.submitted()
    api.said(state="stopped")
    api.worker(0)
    api.stuck.add("job-edljob-worker-0")
    looks = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("GET", "pods"):
            looks.append(name)
            if len(looks) == 10:
                del api.objects["pods", "job-edljob-worker-0"]

    api.meanwhile = meanwhile
    result = elasticdl("jobs", "delete", "job")
    assert result.code == 0
    assert result.err.count("Waiting for the end of job-edljob-worker-0.") == 1
    assert "by force" not in result.err


def test_what_never_goes_is_told(elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_removal, "_PATIENCE_SECONDS", -30.0)
    api.submitted()
    api.said(state="stopped")
    api.worker(0)
    api.stuck.add("job-edljob-worker-0")
    result = elasticdl("jobs", "delete", "job")
    assert result.code == 2
    assert "These pods do not go: job-edljob-worker-0." in result.err
