"""`elasticdl doctor`: findings with what fixes them; the exit code says whether jobs can run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from elasticdl.doctor.checkup import all_checks, run_checks
from elasticdl.doctor.finding import Finding, Level

Checks = Callable[..., None]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    """Replaces the checks by findings."""

    def replace(*found: Finding) -> None:
        made = [(one.subject, lambda one=one: one) for one in found]
        monkeypatch.setattr("elasticdl.doctor.checkup.all_checks", lambda **_: made)

    return replace


GOOD = Finding(subject="Python", level=Level.OK, text="3.11.7")
ABSENT = Finding(subject="cluster", level=Level.ABSENT, text="None is configured.", fix="export KUBECONFIG=x")
BROKEN = Finding(subject="ports", level=Level.ERROR, text="None is free.", fix="ss -tanp")


def test_absent_things_keep_no_job_from_running(elasticdl: Any, checks: Checks) -> None:
    checks(GOOD, ABSENT)
    result = elasticdl("doctor")
    assert result.code == 0
    assert result.out.splitlines() == [
        "ok       Python: 3.11.7",
        "-        cluster: None is configured.",
        "         fix: export KUBECONFIG=x",
        "",
        "Jobs can run here.",
    ]


def test_error_exits_with_one_and_shows_the_fix(elasticdl: Any, checks: Checks) -> None:
    checks(GOOD, BROKEN)
    result = elasticdl("doctor")
    assert result.code == 1
    assert "ERROR    ports: None is free.\n         fix: ss -tanp\n" in result.out
    assert "1 of 2 checks found what keeps jobs from running." in result.out


def test_json_has_every_finding(elasticdl: Any, checks: Checks) -> None:
    checks(GOOD, BROKEN)
    result = elasticdl("doctor", "--json")
    assert result.code == 1
    assert [(one["subject"], one["level"]) for one in json.loads(result.out)] == [
        ("Python", "ok"),
        ("ports", "error"),
    ]


def test_check_that_crashes_is_an_error_and_the_next_one_is_made() -> None:
    begun: list[str] = []

    def crash() -> Finding:
        raise RuntimeError("the check")

    first, second = run_checks([("memory", crash), ("Python", lambda: GOOD)], begins=begun.append)
    assert (first.subject, first.level) == ("memory", Level.ERROR)
    assert "RuntimeError: the check" in first.text
    assert second is GOOD
    assert begun == ["memory", "Python"]


def test_everything_that_was_promised_is_checked() -> None:
    assert [subject for subject, _ in all_checks()] == [
        "Python",
        "system",
        "compiled kernels",
        "C++ compiler",
        "frameworks",
        "memory",
        "shared memory",
        "home of jobs",
        "ports",
        "limits",
        "cluster",
    ]


def test_host_that_is_an_option_of_ssh_is_rejected(elasticdl: Any) -> None:
    result = elasticdl("doctor", "--hosts=a,-oProxyCommand=x")
    assert result.code == 2
    assert "--hosts: '-oProxyCommand=x' is not a host as ssh names it" in result.err
