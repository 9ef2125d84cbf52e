"""The end of a journal is lost: what workers remember makes up for it. All of it is lost: the job ends and says why."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.conftest import wait_until
from e2e.test_oracle import assert_each_sample_applied_once, start_oracle


def test_epoch_missing_in_journal_is_recovered_from_workers(
    start_gated: Callable[..., Any], gates: Any
) -> None:
    gates.hold("train")
    gates.hold("epoch-0")
    job = start_gated()
    gates.wait_for("train", 2)
    (journal,) = (job.folder / "journal").glob("journal-*.log")
    known = journal.stat().st_size
    gates.release("train")
    gates.wait_for("epoch-0")
    master = wait_until(lambda: job.processes().get("master"), "the master runs")
    assert isinstance(master, psutil.Process)
    # Held, so that it writes nothing while what it has not synced is taken away, as by a machine that breaks down.
    master.send_signal(signal.SIGSTOP)
    assert journal.stat().st_size > known
    os.truncate(journal, known)
    (job.folder / "machine").write_text("another")
    master.send_signal(signal.SIGKILL)
    gates.release("epoch-0")
    job.assert_exact(epochs=2, size=1437)
    assert [row["again"] for row in job.audit()["rows"] if row["dataset"] == "training"] == [0, 0]
    assert "Recovering the end of the journal" in (job.folder / "logs" / "master.log").read_text()


def _stopped_master(job: Any) -> psutil.Process:
    """Held, so that it writes nothing while its journal is damaged."""
    master = wait_until(lambda: job.processes().get("master"), "the master runs")
    assert isinstance(master, psutil.Process)
    master.suspend()
    return master


def _journal(job: Any) -> Path:
    (journal,) = (job.folder / "journal").glob("journal-*.log")
    return Path(journal)


@pytest.mark.parametrize("lines", [5, 40])
def test_complete_lines_removed_under_a_killed_master_are_recovered_from_workers(
    start_job: Callable[..., Any], gates: Any, tmp_path: Path, lines: int
) -> None:
    job = start_oracle(start_job, tmp_path, seed=0)
    wait_until(lambda: job.status().get("step", 0) > 40, "the training is under way")
    master = _stopped_master(job)
    journal = _journal(job)
    kept = journal.read_bytes().splitlines(keepends=True)
    assert len(kept) > lines + 1
    journal.write_bytes(b"".join(kept[:-lines]))
    master.kill()
    # If the master was stopped between journaling a lease and replying, no worker reports that lease. As far as the
    # master knows, it may have been trained.
    assert_each_sample_applied_once(job, tmp_path / "checkpoints", is_known=False)
    assert (
        "Recovering the end of the journal: lines are missing"
        in (job.folder / "logs" / "master.log").read_text()
    )


@pytest.mark.parametrize("whole_folder", [False, True], ids=["file", "folder"])
def test_deleted_journal_ends_the_job_with_an_explanation(
    start_gated: Callable[..., Any], gates: Any, whole_folder: bool
) -> None:
    gates.hold("train")
    job = start_gated()
    gates.wait_for("train", 2)
    master = _stopped_master(job)
    if whole_folder:
        shutil.rmtree(job.folder / "journal")
    else:
        _journal(job).unlink()
    master.kill()
    gates.release("train")
    assert job.wait() != 0
    assert "is gone, and with it what was trained" in job.output
    job.assert_nothing_left()


def test_older_copy_of_a_journal_ends_the_job_with_an_explanation(
    start_job: Callable[..., Any], gates: Any, tmp_path: Path
) -> None:
    job = start_oracle(start_job, tmp_path, seed=0)
    wait_until(lambda: job.status().get("step", 0) > 10, "the training is under way")
    copy = tmp_path / "copy"
    shutil.copytree(job.folder / "journal", copy)
    # The workers hear of checkpoints.
    wait_until(lambda: list((tmp_path / "checkpoints").glob("version-*")), "there is a checkpoint")
    master = _stopped_master(job)
    shutil.rmtree(job.folder / "journal")
    shutil.copytree(copy, job.folder / "journal")
    master.kill()
    assert job.wait() != 0
    assert "remembers more than the journal" in job.output
    job.assert_nothing_left()
