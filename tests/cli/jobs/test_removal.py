"""Deleting a job whose pods take their time, or never go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.catalog.api_server import ApiServer, set_timing


def test_slow_deletion_says_what_it_waits_for(
    elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timing(monkeypatch, deletion_note_seconds=0.0)
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


def test_deletion_timeout_is_reported(
    elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timing(monkeypatch, deletion_timeout_seconds=-30.0)
    api.submitted()
    api.said(state="stopped")
    api.worker(0)
    api.stuck.add("job-edljob-worker-0")
    result = elasticdl("jobs", "delete", "job")
    assert result.code == 2
    assert "These pods do not go: job-edljob-worker-0." in result.err
