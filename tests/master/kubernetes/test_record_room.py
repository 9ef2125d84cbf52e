"""What a job's record says in little room: as much after twenty thousand epochs as after a few hundred, and readers see
the same as if it were all there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.job_state import JobState
from elasticdl.master.kubernetes.status_compaction import (
    RESULTS_KEPT,
    in_least_room,
    in_little_room,
    kept_results,
)
from elasticdl.master.ledger.audit import Audit, AuditRow, SkippedRange, render
from elasticdl.master.ledger.audit_rows import unrolled, without_rows, written_short
from elasticdl.master.master import Master
from elasticdl.master.recovery.remote_snapshot import identity, pack, unpack
from elasticdl.master.settings import JobSettings
from elasticdl.master.status import job_status

SPEC = JobSpec.build(
    job_name="long",
    image_name="i",
    model_zoo="zoo",
    model_def="m.m.custom_model",
    training_data="data",
    num_epochs=1_000_000,
)
SIZE = 1437
MEBIBYTE = 1 << 20


def after(epochs: int, folder: Path, platform: Any) -> dict[str, Any]:
    """The status after so many epochs, each with an evaluation."""
    folder.mkdir()
    master = Master(spec=SPEC, folder=folder, platform=platform, token="t", environment={})
    state = master.state
    state.dataset_sizes.announce(TRAINING, SIZE)
    state.ledger.add(state.plan.dataset(TRAINING, SIZE))
    account = state.ledger.accounts[TRAINING]
    account._enter(epochs)
    account.again = {3: 64, epochs // 2: 128}
    state.evaluations.results = results(epochs)
    try:
        return job_status(master)
    finally:
        master._journal.close()
        master._events.close()


def results(count: int) -> list[dict[str, Any]]:
    return [
        {"step": step, "epoch": step, "metrics": {"loss": 1.0 / (1 + step), "auc": 0.123456789012345}}
        for step in range(count)
    ]


def length(status: dict[str, Any]) -> int:
    return len(json.dumps(status, separators=(",", ":")))


def test_twenty_thousand_epochs_and_evaluations(tmp_path: Path, nowhere: Any) -> None:
    long = after(20_000, tmp_path / "long", nowhere)
    # Or there would be nothing to shorten.
    assert length(long) > MEBIBYTE
    kept = in_little_room(long)
    some = in_little_room(after(500, tmp_path / "some", nowhere))
    assert length(kept) < 50_000
    assert length(kept) < 1.1 * length(some)
    assert kept["evaluations"][0]["step"] == 0
    assert [e["step"] for e in kept["evaluations"][-RESULTS_KEPT:]] == [*range(19_800, 20_000)]
    assert kept["evaluations_left_out"] == 20_000 - len(kept["evaluations"])
    assert unrolled(kept["audit"]) == long["audit"]
    assert render(Audit.from_json(kept["audit"])) == render(Audit.from_json(long["audit"]))


def test_a_short_job_is_written_as_it_is(tmp_path: Path, nowhere: Any) -> None:
    status = after(50, tmp_path / "short", nowhere)
    assert in_little_room(status) == status
    assert "left_out" not in status["audit"]


def test_the_snapshot_too() -> None:
    def packed(count: int) -> str:
        state = JobState(JobSettings.of(SPEC))
        state.evaluations.results = results(count)
        return pack(state.snapshot(), of=identity(SPEC, "run"))

    text = packed(20_000)
    assert len(text) < 1.1 * len(packed(500))
    restored = JobState(JobSettings.of(SPEC))
    restored.restore(unpack(text, of=identity(SPEC, "run")))
    assert restored.results == kept_results(results(20_000))
    assert restored.results_forgotten == 20_000 - len(restored.results)


def test_the_best_of_every_metric_is_kept() -> None:
    found = results(1000)
    found[300]["metrics"] = {"loss": -5.0, "auc": 0.5}
    found[400]["metrics"] = {"loss": 0.5, "auc": 0.99}
    found[500]["metrics"] = {"loss": float("nan"), "auc": float("nan")}
    kept = [result["step"] for result in kept_results(found)]
    assert {0, 300, 400} <= set(kept)
    assert 500 not in kept
    assert kept == sorted(kept)


def rows(count: int, *, datasets: int = 1) -> tuple[AuditRow, ...]:
    """No two alike."""
    return tuple(
        AuditRow(
            dataset=f"set-{number}",
            epoch=epoch,
            epochs=count,
            size=100,
            done=99,
            again=epoch,
            skipped=1,
            stopped=False,
        )
        for number in range(datasets)
        for epoch in range(count)
    )


@pytest.mark.parametrize(("count", "datasets"), [(20_000, 1), (5_000, 4), (2, 2_000)])
def test_epochs_that_are_all_different(count: int, datasets: int) -> None:
    audit = Audit(rows=rows(count, datasets=datasets), skipped=(), exact=True, reason="")
    document = written_short(audit.to_json())
    assert len(json.dumps(document)) < 100_000
    assert document["left_out"]["epochs"] + len(document["rows"]) == count * datasets
    read = Audit.from_json(document)
    assert read.rows[-1] == audit.rows[-1]
    told = render(read).splitlines()
    assert f"{document['left_out']['epochs']:,} epochs" in told[2]
    # The total, and the verdict.
    assert [line.split() for line in told[-2:]] == [line.split() for line in render(audit).splitlines()[-2:]]


def test_data_that_is_damaged_everywhere() -> None:
    skipped = tuple(
        SkippedRange(
            dataset="d",
            start=10 * place,
            end=10 * place + 1,
            where="w" * 500,
            reason="r" * 500,
            epochs=tuple((epoch, epoch) for epoch in range(0, 200, 2)),
        )
        for place in range(10_000)
    )
    document = written_short(Audit(rows=(), skipped=skipped, exact=True, reason="x" * 10**6).to_json())
    assert len(json.dumps(document)) < 200_000
    assert "  and 9980 more ranges" in render(Audit.from_json(document)).splitlines()


def test_the_least_that_must_be_known(tmp_path: Path, nowhere: Any) -> None:
    status = after(5_000, tmp_path / "long", nowhere)
    least = in_least_room(status)
    assert length(least) < 3_000
    assert least["state"] == status["state"]
    assert least["audit"]["exact"] == status["audit"]["exact"]
    assert least["evaluations"] == status["evaluations"][-1:]
    told, whole = (
        [line.split() for line in render(Audit.from_json(audit)).splitlines()]
        for audit in (without_rows(status["audit"]), status["audit"])
    )
    # The total, and the verdict.
    assert told[-2:] == whole[-2:]
