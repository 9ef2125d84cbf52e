"""A master that runs and does not write any more: reported after two missed heartbeats, by the cluster's clock."""

from __future__ import annotations

import time

import pytest

from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from tests.catalog.api_server import MASTER, RECORD, RUNNING, ApiServer, container

# By the cluster's clock.
NOW = 1_800_000_000.0


def trouble(
    *,
    written: float | None,
    started: float = 10_000.0,
    behind: float = 0.0,
    now: float | None = NOW,
) -> str:
    """By the seconds since the last write and since the start of the master. `behind`: the clock of its machine is."""
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
    record, master = api.objects["configmaps", RECORD], api.objects["pods", MASTER]
    return ObservedJob(name="job", document=record, master=master, now=now).trouble


def test_master_with_regular_writes_has_no_trouble() -> None:
    assert trouble(written=125) == ""


def test_master_after_two_missed_heartbeats_is_reported() -> None:
    assert trouble(written=301).startswith("it has written nothing since 20")


def test_restarted_master_has_time_to_write() -> None:
    assert trouble(written=5000, started=5) == ""


@pytest.mark.parametrize("behind", [-36_000.0, 360.0, 36_000.0])
def test_clock_of_the_masters_machine_is_not_used(behind: float) -> None:
    assert trouble(written=125, behind=behind) == ""
    assert trouble(written=301, behind=behind, started=100_000)


def test_unknown_times_report_nothing() -> None:
    assert trouble(written=5000, now=None) == ""
    assert trouble(written=None, behind=5000) == ""
