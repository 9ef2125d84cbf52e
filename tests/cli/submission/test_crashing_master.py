"""A master that ends before its first word, again and again, while its pod is "Running": the submission says so, with
the reason and the end of the log, and the job can be looked at, stopped and deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.catalog.api_server import MASTER, RECORD, RUNNING, ApiServer, container, ended, set_timing

TRAIN = ("train", "--job_name=job", "--image_name=i", "--job_command=x")
NO_MODULE = "/usr/bin/python3: No module named elasticdl"
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}
NO_PYTHON = ended(128, 'exec: "python3": executable file not found in $PATH', reason="StartError")


def crashing(state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    """Of a container that is started whenever it ends, the pod is Running."""
    return {**RUNNING, "conditions": [], "containerStatuses": container(state, last=last)}


CRASHES = {
    "has just ended": crashing(ended(1, NO_MODULE)),
    "waits for its next start": crashing(BACK_OFF, ended(1, NO_MODULE)),
    "has been started again": crashing(RUNNING["containerStatuses"][0]["state"], ended(1, NO_MODULE)),
}


def on_creation(api: ApiServer, **status: Any) -> None:
    """So it goes with the master as soon as it is there."""

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("POST", "pods"):
            api.master(**status)

    api.meanwhile = meanwhile


@pytest.mark.parametrize("crash", CRASHES.values(), ids=list(CRASHES))
@pytest.mark.parametrize("wait", [(), ("--wait",)], ids=["", "wait"])
def test_submission_reports_why_master_crashes(
    elasticdl: Any, api: ApiServer, crash: Any, wait: tuple[str, ...]
) -> None:
    on_creation(api, **crash)
    api.logs[MASTER] = lambda query: iter([f"{NO_MODULE}\n"])
    result = elasticdl(*TRAIN, *wait)
    assert result.code == 1
    assert "has not started: it has ended: exit code 1; last output: /usr/bin/python3: No mod" in result.out
    assert f"master | {NO_MODULE}" in result.out
    ((_, query),) = api.log_queries
    assert query["container"] == "master"
    assert query.get("previous", "") == ("true" if "running" in str(crash["containerStatuses"]) else "")


def test_an_image_without_python(elasticdl: Any, api: ApiServer) -> None:
    on_creation(api, **crashing(BACK_OFF, NO_PYTHON))
    result = elasticdl(*TRAIN)
    assert result.code == 1
    assert 'exec: "python3": executable file not found in $PATH' in result.out


def test_a_log_that_may_not_be_read_is_done_without(elasticdl: Any, api: ApiServer) -> None:
    def refused(query: dict[str, str]) -> Iterator[str]:
        raise ConnectionResetError

    on_creation(api, **CRASHES["has just ended"])
    api.logs[MASTER] = refused
    result = elasticdl(*TRAIN)
    assert result.code == 1
    assert "last output: " in result.out


def test_that_its_container_runs_is_not_enough(elasticdl: Any, api: ApiServer) -> None:
    looks = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("POST", "pods"):
            api.master(**RUNNING)
        if (method, kind) == ("GET", "pods"):
            looks.append(name)
            if len(looks) == 3:
                api.master(**CRASHES["has just ended"])

    api.meanwhile = meanwhile
    assert elasticdl(*TRAIN).code == 1


def test_its_first_word_is(elasticdl: Any, api: ApiServer) -> None:
    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("POST", "pods"):
            api.master(**RUNNING)
            api.said(state="running")

    api.meanwhile = meanwhile
    result = elasticdl(*TRAIN)
    assert (result.code, "has not started" in result.out) == (0, False)


def test_a_first_word_that_is_the_last(elasticdl: Any, api: ApiServer) -> None:
    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("POST", "pods"):
            api.master(**RUNNING)
            api.said(state="failed", message="The elasticdl in this image cannot read the job.")

    api.meanwhile = meanwhile
    result = elasticdl(*TRAIN)
    assert result.code == 1
    assert "cannot read the job" in result.out


@pytest.fixture(params=CRASHES.values(), ids=list(CRASHES))
def crashed(api: ApiServer, request: pytest.FixtureRequest) -> ApiServer:
    api.submitted()
    api.master(**request.param)
    return api


def test_its_status_has_the_reason(elasticdl: Any, crashed: ApiServer) -> None:
    assert (
        "Job job: starting. The master: it has ended (exit code 1; last output"
        in elasticdl("jobs", "status", "job").out
    )


def test_job_of_crashed_master_is_stopped(elasticdl: Any, crashed: ApiServer) -> None:
    assert elasticdl("jobs", "stop", "job").out == "Job job: stopped.\n"
    assert crashed.status["message"] == "Stopped before it began: elasticdl jobs stop."
    assert ("pods", MASTER) not in crashed.objects
    assert elasticdl("jobs", "delete", "job").code == 0


def test_job_of_crashed_master_is_deleted(elasticdl: Any, crashed: ApiServer) -> None:
    result = elasticdl("jobs", "delete", "job")
    assert result.out == "Job job deleted.\n", result.err
    assert crashed.objects == {}


def test_not_if_it_has_come_up_meanwhile(elasticdl: Any, api: ApiServer) -> None:
    """It waited when it was looked at; now it runs, and is asked."""
    api.submitted()
    looks: list[str] = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, name) == ("GET", MASTER):
            looks.append(name)
            # The command itself has found out before whether there is something to stop.
            if len(looks) == 2:
                api.master(**RUNNING)
        if (method, name) == ("PATCH", RECORD):
            api.said(state="stopped", observedGeneration=api.desired.generation)

    api.meanwhile = meanwhile
    result = elasticdl("jobs", "stop", "job")
    assert result.out == "Job job: stopped.\n", result.err
    assert api.desired.stop == "elasticdl jobs stop"
    assert ("pods", MASTER) in api.objects
    assert api.deletions == []


def test_wait_for_the_master_times_out(
    elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that had come up, and crashes forever since."""
    set_timing(monkeypatch, answer_timeout_seconds=0.05)
    api.submitted()
    api.said(state="running")
    api.master(**CRASHES["waits for its next start"])
    assert elasticdl("jobs", "delete", "job").code == 2
    result = elasticdl("jobs", "stop", "job")
    assert result.code == 2
    assert "has not answered for 0 s: it has ended (exit code 1; last output" in result.err
    assert "`elasticdl jobs delete job --namespace=lab` removes it" in result.err
    assert elasticdl("jobs", "delete", "job").code == 0
    assert api.objects == {}
