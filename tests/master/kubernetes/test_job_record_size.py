"""What a job's record says in little room: as much after twenty thousand epochs as after a few hundred, and readers see
the same as if it were all there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticdl.jobs.audit import render
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.job_state import JobState
from elasticdl.master.kubernetes.status_compaction import compacted, outcome_only
from elasticdl.master.lifecycle.evaluation_history import EVALUATIONS_KEPT, kept_results
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


def after(epochs: int, folder: Path, platform: Any) -> JobStatus:
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


def length(status: JobStatus) -> int:
    return len(status.to_text(merge_epochs=True))


def test_status_of_twenty_thousand_epochs_has_the_size_of_five_hundred(tmp_path: Path, nowhere: Any) -> None:
    long = after(20_000, tmp_path / "long", nowhere)
    # Or there would be nothing to compact.
    assert len(long.to_text()) > MEBIBYTE
    kept = compacted(long)
    some = compacted(after(500, tmp_path / "some", nowhere))
    assert length(kept) < 50_000
    assert length(kept) < 1.1 * length(some)
    assert kept.evaluations[0].step == 0
    assert [e.step for e in kept.evaluations[-EVALUATIONS_KEPT:]] == [*range(19_800, 20_000)]
    assert kept.evaluations_omitted == 20_000 - len(kept.evaluations)
    read = JobStatus.from_text(kept.to_text(merge_epochs=True))
    assert read.audit == long.audit
    assert read == kept


def test_status_of_a_short_job_is_written_in_full(tmp_path: Path, nowhere: Any) -> None:
    status = after(50, tmp_path / "short", nowhere)
    assert compacted(status) == status
    assert status.to_json(merge_epochs=True) == status.to_json()


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


def test_outcome_keeps_the_verdict_in_little_room(tmp_path: Path, nowhere: Any) -> None:
    status = after(5_000, tmp_path / "long", nowhere)
    least = outcome_only(status)
    assert length(least) < 3_000
    assert least.state == status.state
    assert least.evaluations == status.evaluations[-1:]
    assert least.audit is not None
    assert status.audit is not None
    assert least.audit.exact == status.audit.exact
    short, whole = (
        [line.split() for line in render(audit).splitlines()] for audit in (least.audit, status.audit)
    )
    # The total, and the verdict.
    assert short[-2:] == whole[-2:]
