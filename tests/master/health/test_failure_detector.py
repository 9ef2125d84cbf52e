"""The failure detector by itself: events and a view of the job in, decisions out."""

from __future__ import annotations

import math

import pytest

from elasticdl.master.health.decisions import Action, Decision, FailureKind
from elasticdl.master.health.failure_detector import FailureDetector
from elasticdl.master.health.job_view import JobView, NodeView
from elasticdl.master.health.timeouts import Timeouts

WORKER = NodeView(name="worker-0", role="worker", shards=1)


def job(*nodes: NodeView, failed: frozenset[str] = frozenset()) -> JobView:
    return JobView(nodes=nodes, failed=failed)


@pytest.fixture
def detector() -> FailureDetector:
    """One whose checks may be far apart."""
    timeouts = Timeouts(stall_floor_seconds=60, start_seconds=600, master_pause_seconds=math.inf)
    return FailureDetector(timeouts, now=0.0)


def test_decision_names_its_node_kind_times_and_action(detector: FailureDetector) -> None:
    detector.stream_opened("worker-0")
    detector.progress_reported("worker-0", 5.0, batch_seconds=4.0)
    assert detector.check(job(WORKER), 85.0) == []
    # 20 times the median batch is more than the floor.
    assert detector.check(job(WORKER), 86.0) == [
        Decision(node="worker-0", kind=FailureKind.STALLED, since=5.0, deadline=85.0, action=Action.FAIL)
    ]


def test_decision_is_repeated_until_it_is_acted_on(detector: FailureDetector) -> None:
    detector.stream_opened("worker-0")
    detector.progress_reported("worker-0", 0.0, batch_seconds=0.1)
    first = detector.check(job(WORKER), 61.0)
    assert detector.check(job(WORKER), 62.0) == first
    detector.acted_on(first[0], 62.0)
    assert detector.check(job(WORKER), 63.0) == []
    # If the process survives, its stall timer has begun with the last check.
    (again,) = detector.check(job(WORKER), 124.0)
    assert again.since == 63.0


def test_node_that_fails_in_several_ways_gets_one_decision(detector: FailureDetector) -> None:
    detector.stream_opened("worker-0")
    detector.stream_closed("worker-0", 0.0)
    detector.progress_reported("worker-0", 0.0, batch_seconds=0.1)
    failed = job(WORKER, failed=frozenset({"worker-0"}))
    detector.check(failed, 0.0)
    (decision,) = detector.check(failed, 1000.0)
    assert decision.kind is FailureKind.STALLED


def test_report_precedes_the_kill_and_carries_its_deadline(detector: FailureDetector) -> None:
    unjoined = NodeView(name="ps-1", role="ps", has_joined=False)
    detector.node_started("ps-1", 10.0)
    assert detector.check(job(unjoined), 39.0) == []
    (report,) = detector.check(job(unjoined), 40.0)
    assert (report.kind, report.action) == (FailureKind.NEVER_JOINED, Action.REPORT)
    assert (report.since, report.deadline) == (10.0, 610.0)
    (kill,) = detector.check(job(unjoined), 611.0)
    assert (kill.kind, kill.action) == (FailureKind.NEVER_JOINED, Action.FAIL)


def test_disabled_timeout_has_an_infinite_deadline() -> None:
    detector = FailureDetector(Timeouts(stall_factor=0, master_pause_seconds=math.inf), now=0.0)
    detector.check(job(WORKER), 0.0)
    (report,) = detector.check(job(WORKER), 86_400.0)
    assert (report.kind, report.action) == (FailureKind.UNRESPONSIVE, Action.REPORT)
    assert report.deadline == math.inf


@pytest.mark.parametrize(("replaceable", "deadline"), [(True, 40.0), (False, 130.0)])
def test_server_is_decided_upon_only_by_a_probe(
    detector: FailureDetector, replaceable: bool, deadline: float
) -> None:
    answered = {"ps-0": True, "ps-1": False}
    assert detector.servers_probed(answered, 10.0, replaceable=replaceable) == []
    assert all(decision.action is Action.REPORT for decision in detector.check(job(), 10_000.0))
    assert detector.servers_probed(answered, deadline - 1, replaceable=replaceable) == []
    (decision,) = detector.servers_probed(answered, deadline, replaceable=replaceable)
    assert (decision.node, decision.kind) == ("ps-1", FailureKind.SERVER_UNRESPONSIVE)
    assert (decision.since, decision.deadline, decision.action) == (10.0, deadline, Action.KILL)


def test_straggler_is_killed_unless_it_has_made_progress_within_the_timeout(
    detector: FailureDetector,
) -> None:
    detector.progress_reported("worker-0", 100.0)
    assert detector.check_straggler("worker-0", 130.0, timeout_seconds=30.0) is None
    late = detector.check_straggler("worker-0", 131.0, timeout_seconds=30.0)
    assert late is not None
    assert (late.kind, late.since, late.deadline) == (FailureKind.STRAGGLER, 100.0, 130.0)


def test_straggler_that_has_never_made_progress_is_killed(detector: FailureDetector) -> None:
    late = detector.check_straggler("worker-1", 131.0, timeout_seconds=30.0)
    assert late is not None
    assert (late.node, late.action, late.deadline) == ("worker-1", Action.KILL, 131.0)


def test_worker_whose_end_is_being_accounted_for_is_not_unresponsive(detector: FailureDetector) -> None:
    ended = NodeView(name="worker-0", role="worker", has_ended=True)
    detector.check(job(ended), 0.0)
    assert detector.check(job(ended), 10_000.0) == []
