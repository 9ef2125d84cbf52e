"""A running master that cannot write its status, because its credentials are refused or it hangs: the command reports
that, and the job can be removed.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.catalog.api_server import RUNNING, ApiServer, set_timing


@pytest.fixture
def silent(api: ApiServer) -> ApiServer:
    api.submitted()
    api.said(state="running", written=time.time() - 1000)
    api.master(**RUNNING)
    return api


def test_status_names_time_of_last_write(elasticdl: Any, silent: ApiServer) -> None:
    assert "running. The master: it has written nothing since " in elasticdl("jobs", "status", "job").out


def test_job_is_deleted_after_unanswered_stop(
    elasticdl: Any, silent: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timing(monkeypatch, answer_timeout_seconds=0.05)
    assert elasticdl("jobs", "delete", "job").code == 2
    result = elasticdl("jobs", "stop", "job")
    assert result.code == 2
    assert "has not answered for 0 s: it has written nothing since " in result.err
    assert elasticdl("jobs", "delete", "job").code == 0
    assert silent.objects == {}
