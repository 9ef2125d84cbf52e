"""A master that runs and may not write any more, as its credentials are refused, or hangs: that is told, and the job
can be removed.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from elasticdl.catalog.kubernetes import job as kubernetes_job
from elasticdl.catalog.kubernetes.observed_job import trouble_of
from tests.catalog.api_server import MASTER, RECORD, RUNNING, ApiServer, container

# By the cluster's clock.
NOW = 1_800_000_000.0


def job(
    *, written: float | None, started: float = 10_000.0, behind: float = 0.0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record and a master's pod, by the seconds that have passed since each. `behind`: its machine's clock is."""
    api = ApiServer()
    api.submitted()
    api.said(
        state="running",
        now=NOW - (written or 0.0) - behind,
        written=None if written is None else NOW - written,
    )
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - started - behind))
    api.master(**{**RUNNING, "containerStatuses": container({"running": {"startedAt": began}}, ready=True)})
    api.close()
    return api.objects["configmaps", RECORD], api.objects["pods", MASTER]


def test_one_that_writes_now_and_then_is_all_right() -> None:
    assert trouble_of(*job(written=125), NOW) == ""


def test_one_that_has_not_for_long_is_not() -> None:
    assert trouble_of(*job(written=301), NOW).startswith("it has written nothing since 20")


def test_one_that_has_just_been_started_has_had_no_time_to() -> None:
    assert trouble_of(*job(written=5000, started=5), NOW) == ""


@pytest.mark.parametrize("behind", [-36_000.0, 360.0, 36_000.0])
def test_the_clock_of_its_machine_may_be_wrong(behind: float) -> None:
    assert trouble_of(*job(written=125, behind=behind), NOW) == ""
    assert bool(trouble_of(*job(written=301, behind=behind, started=100_000), NOW))


def test_nobody_is_accused_by_a_clock_that_is_not_known() -> None:
    assert trouble_of(*job(written=5000), None) == ""
    # As masters wrote before they wrote down when.
    assert trouble_of(*job(written=None, behind=5000), NOW) == ""


@pytest.fixture
def silent(api: ApiServer) -> ApiServer:
    api.submitted()
    api.said(state="running", written=time.time() - 1000)
    api.master(**RUNNING)
    return api


def test_the_status_says_so(elasticdl: Any, silent: ApiServer) -> None:
    assert "running. The master: it has written nothing since " in elasticdl("jobs", "status", "job").out


def test_it_can_be_deleted_when_it_has_not_heard_that_it_is_to_stop(
    elasticdl: Any, silent: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_job, "_OBEY_SECONDS", 0.05)
    assert elasticdl("jobs", "delete", "job").code == 2
    result = elasticdl("jobs", "stop", "job")
    assert result.code == 2
    assert "has not answered for 0 s: it has written nothing since " in result.err
    assert elasticdl("jobs", "delete", "job").code == 0
    assert silent.objects == {}
