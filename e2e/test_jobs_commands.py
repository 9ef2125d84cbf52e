"""The commands around a running job: scale, status, logs, stop, audit, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from e2e.conftest import wait_until

SIZE = 1437


def _working(job: Any) -> set[str]:
    status = job.status()
    return {
        n["name"]
        for n in status.get("nodes", [])
        if n["role"] == "worker" and n["phase"] == "running" and n["joined"]
    }


def test_running_job_is_scaled_up_and_down(start_gated: Callable[..., Any], gates: Any) -> None:
    gates.hold("train")
    job = start_gated("--num_workers=1", "--num_epochs=2", environment={"ELASTICDL_TEST_SLOW": "0.01"})
    gates.wait_for("train")
    grown = job.command("jobs", "scale", "gated", "--num_workers=3")
    assert grown.returncode == 0, grown.stderr
    wait_until(lambda: _working(job) == {"worker-0", "worker-1", "worker-2"}, "three workers")
    gates.wait_for("train", 3)
    shrunk = job.command("jobs", "scale", "gated", "--num-workers=1")
    assert shrunk.returncode == 0, shrunk.stderr
    gates.release("train")
    job.assert_exact(epochs=2, size=SIZE)
    # No worker was restarted, and those that left had finished their batches first.
    assert {path.stem for path in (job.folder / "logs").glob("worker-*.log")} == {
        "worker-0",
        "worker-1",
        "worker-2",
    }
    assert {row["again"] for row in job.audit()["rows"]} == {0}
    master = (job.folder / "logs" / "master.log").read_text()
    assert "worker-1 ended: completed" in master
    assert "worker-2 ended: completed" in master


def test_status_logs_audit_and_history(finished: Any) -> None:
    job = finished.job
    listed = job.command("jobs", "list")
    assert "gated" in listed.stdout
    assert "succeeded" in listed.stdout
    assert "Loss[step=" in job.command("jobs", "logs", "gated", "worker-0").stdout
    assert "Evaluation metrics[step=" in job.command("jobs", "logs", "gated", "master").stdout
    everything = job.command("jobs", "logs", "gated", "-f").stdout
    assert "worker-1: " in everything
    assert "master: " in everything
    audit = job.command("jobs", "audit", "gated")
    assert "Exact: every sample of every epoch is accounted for." in audit.stdout
    assert job.command("jobs", "status", "gated").returncode == 0
    assert job.command("jobs", "delete", "gated").returncode == 0
    gone = job.command("jobs", "status", "gated")
    assert gone.returncode == 2
    assert "There is no job 'gated'" in gone.stderr


def test_stopped_job_saves_checkpoint_that_another_job_continues(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Any
) -> None:
    """Onto another number of workers and servers, without training a sample twice."""
    checkpoints = tmp_path / "checkpoints"
    job = start_gated(
        f"--checkpoint_dir={checkpoints}", "--num_epochs=10000", environment={"ELASTICDL_TEST_SLOW": "0.01"}
    )
    gates.wait_for("train", 2)
    wait_until(lambda: job.status().get("step", 0) > 5, "some steps")
    stopped = job.command("jobs", "stop", "gated")
    assert "stopped" in stopped.stdout, stopped.stderr
    assert job.wait() == 130
    job.assert_nothing_left()
    rows = [row for row in job.audit()["rows"] if row["dataset"] == "training"]
    before = job.status()["step"]
    epochs = len(rows) + 1
    second = start_gated(
        "--job_name=second",
        f"--checkpoint_dir_for_init={checkpoints}",
        f"--num_epochs={epochs}",
        "--num_workers=1",
        "--num_ps=2",
    )
    second.assert_exact(epochs=epochs, size=SIZE)
    # The steps of both together are those of one job, but for batches that were cut smaller by a split: what had
    # been trained before the stop was not trained again.
    whole = epochs * -(-SIZE // 32)
    assert whole <= second.status()["step"] <= whole + 4 * epochs
    assert before > 5
