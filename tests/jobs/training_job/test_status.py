"""The status of a TrainingJob: its document, conditions, and the columns of kubectl."""

from __future__ import annotations

import pytest

from elasticdl.jobs.audit import Audit, AuditRow
from elasticdl.jobs.status import StatusError
from elasticdl.jobs.training_job.status import (
    ConditionType,
    DecisionRecord,
    GoodputStatus,
    LostSeconds,
    ProgressStatus,
    RoleStatus,
    TrainingJobPhase,
    TrainingJobStatus,
    format_duration,
)

_FULL = TrainingJobStatus(
    phase=TrainingJobPhase.RUNNING,
    observed_generation=4,
    trainer=RoleStatus(ready=3, desired=4, min=2, max=10),
    pserver=RoleStatus(ready=2, desired=2, min=2, max=2),
    progress=ProgressStatus(epochs=2, samples_done=425, samples_total=1000, remaining_seconds=3725.0),
    goodput=GoodputStatus(ratio=0.9, lost_seconds=LostSeconds(resizing=3.5)),
    decisions=(DecisionRecord(time="2026-01-01T00:00:00Z", kind="Grow", before=3, after=4),),
    audit=Audit(
        rows=(AuditRow(dataset="d", epoch=0, epochs=1, size=9, done=9, again=0, skipped=0, stopped=False),),
        skipped=(),
        exact=True,
        reason="",
    ),
)


def test_document_reads_back_as_the_status() -> None:
    assert TrainingJobStatus.from_document(_FULL.to_document()) == _FULL
    assert TrainingJobStatus.from_document(None) == TrainingJobStatus()


def test_document_has_no_empty_texts() -> None:
    """Some API servers take them for null, and refuse the status."""

    def texts(value: object) -> list[str]:
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [value] if isinstance(value, str) else [text for part in parts for text in texts(part)]

    status = TrainingJobStatus().with_condition(ConditionType.VALID, True, reason="", now_seconds=0.0)
    document = status.to_document()
    assert texts(document)
    assert "" not in texts(document)
    assert TrainingJobStatus.from_document(document) == status


def test_summary_has_the_columns_of_kubectl() -> None:
    assert _FULL.summary() == {
        "trainers": "3/4 (2–10)",
        "parameterServers": "2/2 (2)",
        "progress": "42 %",
        "timeLeft": "1h2m",
    }


def test_newer_version_is_refused() -> None:
    with pytest.raises(StatusError, match="version 2"):
        TrainingJobStatus.from_document({"version": 2})


def test_transition_time_changes_only_with_the_status() -> None:
    first = TrainingJobStatus().with_condition(ConditionType.READY, False, reason="Waiting", now_seconds=0.0)
    second = first.with_condition(ConditionType.READY, False, reason="NoImage", now_seconds=60.0)
    third = second.with_condition(ConditionType.READY, True, reason="AllReady", now_seconds=120.0)
    times = [status.condition(ConditionType.READY) for status in (first, second, third)]
    assert [item.last_transition_time for item in times if item] == [
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:02:00Z",
    ]
    assert len(third.conditions) == 1


def test_only_the_newest_decisions_are_kept() -> None:
    status = TrainingJobStatus()
    for number in range(30):
        status = status.with_decision(DecisionRecord(time="", kind="Grow", after=number))
    assert [item.after for item in status.decisions] == list(range(10, 30))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59, "59s"), (3600, "1h"), (90061, "1d1h"), (-5, "0s")]
)
def test_duration_has_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_empty_texts_are_left_out_of_the_document() -> None:
    status = TrainingJobStatus().with_condition(ConditionType.VALID, True, reason="Accepted", now_seconds=0.0)
    document = status.to_document()
    assert "message" not in document
    assert "message" not in document["conditions"][0]
    assert document["summary"] == {}
    assert TrainingJobStatus.from_document(document) == status
