"""The history that follows from one status after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticdl.jobs.history.entries import (
    EventKind,
    JobEvent,
    NodeChange,
    NodeState,
    Sample,
    parse_lines,
    to_line,
)
from elasticdl.jobs.history.recorder import HistoryRecorder
from elasticdl.jobs.status import Evaluation, JobStatus, NodeReport, RunState


def node(name: str, phase: str = "running", **more: Any) -> NodeReport:
    return NodeReport(name=name, role=name.partition("-")[0], phase=phase, **{"has_joined": True, **more})


def status(now: float, *nodes: NodeReport, **more: Any) -> JobStatus:
    return JobStatus(
        job="job", state=RunState.RUNNING, now=now, nodes=nodes, desired_nodes={"worker": 2}, epochs=3, **more
    )


def changes(entries: list[Any]) -> list[tuple[str, str, str]]:
    return [(one.node, str(one.state), one.reason) for one in entries if isinstance(one, NodeChange)]


def events(entries: list[Any]) -> list[tuple[EventKind, str]]:
    return [(one.event, one.text) for one in entries if isinstance(one, JobEvent)]


def test_life_of_a_killed_worker() -> None:
    recorder = HistoryRecorder()
    assert changes(recorder.observe(status(1.0, node("worker-0", "pending", has_joined=False)))) == [
        ("worker-0", "pending", "")
    ]
    assert changes(recorder.observe(status(2.0, node("worker-0", has_joined=False)))) == [
        ("worker-0", "starting", "")
    ]
    assert changes(recorder.observe(status(3.0, node("worker-0")))) == [("worker-0", "working", "")]
    assert changes(recorder.observe(status(4.0, node("worker-0")))) == []
    killed = node("worker-0", "failed", reason="killed", message="ended by SIGKILL")
    (change,) = (
        one
        for one in recorder.observe(status(5.0, killed, node("worker-1")))
        if isinstance(one, NodeChange) and one.node == "worker-0"
    )
    assert (change.state, change.reason, change.message) == (NodeState.ENDED, "killed", "ended by SIGKILL")


def test_states_of_a_node() -> None:
    assert NodeState.of(node("worker-0", is_draining=True)) is NodeState.DRAINING
    assert NodeState.of(node("worker-0", is_draining=True, reason="killed")) is NodeState.ENDED
    assert NodeState.of(node("worker-0", unresponsive_since_seconds=5.0)) is NodeState.UNRESPONSIVE
    assert NodeState.of(node("worker-0", "leaving")) is NodeState.DRAINING
    assert NodeState.of(node("worker-0", "succeeded", reason="completed")) is NodeState.ENDED


def test_changes_of_status_become_events() -> None:
    recorder = HistoryRecorder()
    first = status(1.0)
    assert events(recorder.observe(first)) == [(EventKind.STATE, "The job has started.")]
    grown = replace(first, now=2.0, desired_nodes={"worker": 4}, epoch=1, checkpoint="/c/version-9")
    assert [kind for kind, _ in events(recorder.observe(grown))] == [
        EventKind.SIZE,
        EventKind.EPOCH,
        EventKind.CHECKPOINT,
    ]
    evaluated = replace(grown, now=3.0, evaluations=(Evaluation(step=9, metrics={"auc": 0.5}),))
    assert events(recorder.observe(evaluated)) == [(EventKind.EVALUATION, "Evaluation at step 9: auc 0.5")]
    lost = replace(evaluated, now=4.0, model_generation=1, epoch=0, non_finite_batches=3)
    assert [kind for kind, _ in events(recorder.observe(lost))] == [EventKind.ROLLBACK, EventKind.WARNING]
    failed = replace(lost, now=5.0, state=RunState.FAILED, message="No memory.")
    assert events(recorder.observe(failed)) == [(EventKind.STATE, "The job has the state failed. No memory.")]


def test_samples_become_rarer_with_the_age_of_the_job() -> None:
    recorder = HistoryRecorder()
    found = [
        entry.time
        for second in range(0, 20_000)
        for entry in recorder.observe(status(float(second)))
        if isinstance(entry, Sample)
    ]
    assert found[:3] == [0.0, 1.0, 2.0]
    assert found[-1] - found[-2] >= 17.0
    assert len(found) < 5000
    (last,) = (one for one in recorder.observe(status(20_001.0), last=True) if isinstance(one, Sample))
    assert last.time == 20_001.0


def test_next_master_continues_the_history() -> None:
    recorder = HistoryRecorder()
    written = [*recorder.observe(status(0.0, node("worker-0"), samples_done=5))]
    written += recorder.observe(status(2.0, node("worker-0"), samples_done=9))
    text = "".join(map(to_line, written))
    again = HistoryRecorder(parse_lines([*text.splitlines(), '{"time": 3.0, "no', "[]", "7", '{"node": 1}']))
    entries = again.observe(status(30.0, node("worker-0"), samples_done=9))
    assert changes(entries) == []
    assert events(entries) == [(EventKind.STATE, "The master has started again.")]
    (sample,) = (one for one in entries if isinstance(one, Sample))
    assert sample.account.worked == 1.0
    assert sample.account.master_away == 23.0


def test_entries_are_read_as_they_were_written() -> None:
    recorder = HistoryRecorder()
    entries = recorder.observe(
        status(1.25, node("worker-0"), step=7, loss=0.5), {"learning_rate": 0.1}, last=True
    )
    assert list(parse_lines(map(to_line, entries))) == entries
