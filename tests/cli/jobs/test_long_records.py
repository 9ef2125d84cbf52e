"""The record of a job that has trained for long: readers show what is in it as ever, and say what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.output.display import final_lines, make_display
from elasticdl.jobs.status import JobStatus

EPOCHS = 20_000


def row(epoch: int) -> dict[str, Any]:
    return {
        "dataset": "training",
        "epoch": epoch,
        "epochs": EPOCHS,
        "size": 10,
        "done": 10,
        "again": 0,
        "skipped": 0,
        "stopped": False,
    }


AUDIT: dict[str, Any] = {
    "rows": [row(epoch) for epoch in range(EPOCHS)],
    "skipped": [],
    "exact": True,
    "reason": "",
}


def evaluation(step: int) -> dict[str, Any]:
    return {"step": step, "epoch": -1, "metrics": {"auc": 0.5}}


def status(**more: Any) -> dict[str, Any]:
    return {
        "job": "long",
        "kind": "train",
        "state": "succeeded",
        "phase": "succeeded",
        "message": "",
        "epoch": EPOCHS - 1,
        "epochs": EPOCHS,
        "samples_done": 10,
        "samples_total": 10,
        "samples_per_second": 0.0,
        "step": 1,
        "loss": None,
        "losses": [],
        "evaluations": [],
        "nodes": [],
        "targets": {"worker": 1},
        **more,
    }


def test_final_lines_of_a_compacted_audit_are_those_of_the_whole() -> None:
    whole = JobStatus.from_json(status(audit=AUDIT))
    compacted = JobStatus.from_json(whole.to_json(merge_epochs=True))
    assert len(whole.to_json(merge_epochs=True)["audit"]["rows"]) == 1
    assert final_lines(compacted, "here") == final_lines(whole, "here")
    assert any("1-20000/20000" in line for line in "\n".join(final_lines(whole, "here")).split())


def test_evaluations_that_are_not_listed_are_counted(
    elasticdl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))
    folder = tmp_path / "jobs" / "long"
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text("job_name: long\n")
    record = {"kind": "train", "created": 1.0, "ended": 2.0, "state": "succeeded", "message": ""}
    (folder / "record.json").write_text(json.dumps(record))
    for count, is_shown in ((1234, True), (0, False)):
        document = status(evaluations=[evaluation(1)], evaluations_left_out=count)
        (folder / "status.json").write_text(json.dumps(document))
        shown = elasticdl("jobs", "status", "long")
        assert shown.code == 0, shown.err
        assert "Evaluation metrics[step=1]" in shown.out
        assert ("1,234 more evaluations are not listed" in shown.out) == is_shown


def test_new_evaluations_of_truncated_list_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = make_display(quiet=False)
    for newest in range(3, 6):
        kept = [evaluation(0), *(evaluation(step) for step in range(newest - 2, newest))]
        display.progressed(JobStatus.from_json(status(evaluations=kept)))
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Evaluation")]
    assert [line.partition("]")[0] for line in printed] == [f"Evaluation metrics[step={n}" for n in range(5)]
