"""Where the time of a job goes."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.jobs.history.time_account import TimeAccount
from elasticdl.jobs.status import JobStatus, NodeReport

WORKER = NodeReport(name="worker-0", role="worker", phase="running", has_joined=True)


def status(now: float, **more: Any) -> JobStatus:
    given: dict[str, Any] = {
        "kind": "train",
        "phase": "training",
        "samples_done": 10,
        "nodes": (WORKER, WORKER),
    }
    return JobStatus(now=now, **{**given, "desired_nodes": {"worker": 2, "ps": 1}, **more})


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ({}, "worked"),
        ({"samples_done": 0}, "starting"),
        ({"phase": "evaluating"}, "evaluating"),
        ({"phase": "evaluating", "kind": "evaluate"}, "worked"),
        ({"phase": "ending an epoch"}, "saving"),
        ({"phase": "exporting"}, "saving"),
        ({"nodes": ()}, "resizing"),
    ],
)
def test_time_belongs_to_the_state_before(before: dict[str, Any], cause: str) -> None:
    account = TimeAccount().after(status(0.0, **before), status(4.0), most_seconds=10.0)
    assert account == TimeAccount(**{cause: 4.0})
    assert account.total == 4.0


def test_missing_workers_cost_their_share() -> None:
    account = TimeAccount().after(status(0.0, nodes=(WORKER,)), status(4.0), most_seconds=10.0)
    assert (account.worked, account.resizing) == (2.0, 2.0)
    assert account.goodput == 0.5


def test_long_silence_is_time_without_a_master() -> None:
    account = TimeAccount().after(status(0.0), status(60.0), most_seconds=5.0)
    assert (account.worked, account.master_away) == (5.0, 55.0)


def test_stragglers_and_retraining_are_parts_of_the_work_that_never_fall() -> None:
    after = status(10.0, samples_done=30, samples_again=10, straggler_seconds=2.0)
    account = TimeAccount().after(status(0.0), after, most_seconds=100.0)
    assert (account.stragglers, account.retraining, account.training) == (2.0, 2.0, 6.0)
    later = account.after(after, status(10.5, samples_done=30), most_seconds=100.0)
    assert (later.stragglers, later.retraining) == (2.0, 2.0)
    assert later.total == 10.5


def test_clock_that_jumps_back_adds_nothing() -> None:
    assert TimeAccount().after(status(9.0), status(1.0), most_seconds=5.0) == TimeAccount()
    assert TimeAccount().goodput is None
