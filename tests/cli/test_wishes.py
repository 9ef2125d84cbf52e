"""Wishes that are written while the master is away: none is lost to a later one without a word."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.catalog.kubernetes import job
from tests.catalog.api_server import RECORD, RUNNING, ApiServer


@pytest.fixture
def away(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """Its master answers nobody."""
    monkeypatch.setattr(job, "_OBEY_SECONDS", 0.05)
    api.submitted()
    api.said(state="running", wish={"id": "old", "answer": ""})
    api.master(**RUNNING)
    wish(api, num_workers=9, id="old")
    return api


def wish(api: ApiServer, **wishes: Any) -> None:
    api.change("configmaps", RECORD, {"data": {"wishes.json": json.dumps(wishes)}})


def test_a_stop_is_not_lost_to_a_later_size(elasticdl: Any, away: ApiServer) -> None:
    assert "has not answered" in elasticdl("jobs", "stop", "job").err
    result = elasticdl("jobs", "scale", "job", "--num_workers=3")
    assert result.code == 2
    assert "Job job is to be stopped (elasticdl jobs stop), which its master has not seen yet." in result.err
    assert away.wishes["stop"] == "elasticdl jobs stop"


def test_sizes_are_kept_together(elasticdl: Any, away: ApiServer) -> None:
    assert "as soon as its master has seen it" in elasticdl("jobs", "scale", "job", "--num_workers=3").out
    elasticdl("jobs", "scale", "job", "--num_ps=2")
    assert {**away.wishes, "id": ""} == {"num_workers": 3, "num_ps": 2, "id": ""}


def test_what_was_carried_out_is_over(elasticdl: Any, away: ApiServer) -> None:
    elasticdl("jobs", "scale", "job", "--num_ps=2")
    assert "num_workers" not in away.wishes


def test_what_somebody_else_writes_at_the_same_moment(elasticdl: Any, away: ApiServer) -> None:
    written: list[str] = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, name) == ("GET", RECORD) and len(written) < 3:
            written.append(name)
            wish(away, stop="theirs", id="theirs")

    # From the first look on which it is decided what is written; the command itself has looked before.
    looks = iter([None, None])
    away.meanwhile = lambda *request: meanwhile(*request) if next(looks, "enough") == "enough" else None
    assert elasticdl("jobs", "scale", "job", "--num_workers=3").code == 2
    assert away.wishes["stop"] == "theirs"
