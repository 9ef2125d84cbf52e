"""An API server that does not answer for longer than a person waits: who waits for the end of a job waits on."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl import run
from tests.catalog.api_server import RUNNING, ApiServer, set_timing

TRAIN = ("train", "--job_name=job", "--image_name=i", "--job_command=x")


class Outage:
    """Begins some looks after the master has been made, and lasts for some more. The job ends meanwhile."""

    def __init__(self, api: ApiServer, *, first: int, last: int) -> None:
        self._api, self._first, self._last = api, first, last
        self._looks = -1
        api.meanwhile = self._meanwhile
        api.hangs_up = self._hangs_up

    def _meanwhile(self, method: str, kind: str, name: str) -> None:
        if (method, kind) == ("POST", "pods"):
            self._api.master(**RUNNING)
            self._api.said(state="running")
            self._looks = 0

    def _hangs_up(self, method: str, kind: str, name: str) -> bool:
        if self._looks < 0 or kind != "configmaps":
            return False
        self._looks += 1
        if self._looks == self._last:
            self._api.said(state="succeeded", message="")
        return self._first <= self._looks <= self._last


@pytest.fixture(autouse=True)
def no_patience(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timing(monkeypatch, request_timeout_seconds=0.0)


@pytest.mark.parametrize("first", [1, 3], ids=["before its first word", "while it trains"])
def test_waiting_command_reports_the_outage_once_and_waits_on(
    elasticdl: Any, api: ApiServer, first: int
) -> None:
    Outage(api, first=first, last=9)
    result = elasticdl(*TRAIN, "--wait")
    assert result.code == 0, result.err
    assert result.out.count("does not answer") == 1
    assert "Waiting for it." in result.out
    assert "succeeded" in result.out


def test_python_api_waits_through_the_outage(api: ApiServer) -> None:
    Outage(api, first=3, last=9)
    result = run(job_name="job", image_name="i", job_command="x")
    assert (result.state, result.exit_code) == ("succeeded", 0)


def test_command_without_wait_fails_at_once(elasticdl: Any, api: ApiServer) -> None:
    Outage(api, first=1, last=9)
    result = elasticdl(*TRAIN)
    assert result.code == 2
    assert "does not answer" in result.err
