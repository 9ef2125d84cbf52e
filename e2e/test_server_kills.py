"""Parameter servers are killed at moments that are bad ones: before there is a model, while a checkpoint is written,
while buckets move, while the model is restored, just after that, and all of them at once. One is not killed, and does
nothing any more.

A victim is stopped first (SIGSTOP). Then there is time to see how far it has come, and it is killed only if it is in
the middle of what it was to be killed in; else it goes on, and the next occasion is waited for.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.conftest import DEADLINE, wait_until
from elasticdl.ps.checkpoint.checkpoint_folders import file_name, versions
from elasticdl.ps.core.buckets import BUCKETS

SIZE = 1437
EPOCHS = 2


def _buckets(job: Any) -> dict[str, Any]:
    return dict(job.status().get("buckets") or {})


def _wait_for_two_copies(job: Any, servers: int, *, killed: str) -> set[str]:
    def settled() -> set[str]:
        buckets = _buckets(job)
        there = set(buckets.get("by_server", {}))
        whole = len(there) == servers and not buckets["moving"] and buckets["with_one_copy"] == 0
        # Until the loss is detected, the map is the old one.
        return there if whole and killed not in there else set()

    found: set[str] = wait_until(settled, f"two copies of everything on {servers} servers")
    return found


def _spin(condition: Callable[..., Any], what: str) -> Any:
    """Without a pause: it is over in no time."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if found := condition():
            return found
    raise AssertionError(f"did not happen: {what}")


def _stop(process: psutil.Process) -> None:
    process.suspend()
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "it is stopped")


def _kill_while_it_saves(job: Any, checkpoints: Path, over: Callable[[], Any]) -> str:
    """A server of two that has not written its file of a checkpoint that is being written. Returns its name.

    `over`: there are no more checkpoints.
    """
    # Their files are in the order in which the status has them.
    victim = next(iter(_buckets(job)["by_server"]))
    process = job.processes()[victim]
    while True:
        # It is there while the checkpoint is written.
        folder = _spin(
            lambda: over() or next(checkpoints.glob(".version-*"), None), "a checkpoint is written"
        )
        assert isinstance(folder, Path), "it could be stopped in none"
        _stop(process)
        if folder.exists() and not (folder / file_name(0, 2)).exists():
            process.kill()
            return str(victim)
        process.resume()
        _spin(lambda there=folder: not there.exists(), "the checkpoint is written")


def _kill_while_buckets_move(job: Any, there: set[str]) -> str:
    """A server of two that gives a third one what it has. Returns its name."""
    victim = min(there)
    process = job.processes()[victim]
    while True:
        _scale(job, 3)
        shares = _spin(
            lambda: len(shares := _buckets(job).get("by_server", {})) == 3 and shares, "buckets move"
        )
        (new,) = shares.keys() - there
        _stop(process)
        # Copies first, roles then: as long as it has not got its share of these, something is to be copied or handed
        # over.
        if _buckets(job)["by_server"][new] < BUCKETS // 3:
            process.kill()
            return victim
        process.resume()
        _scale(job, 2)
        _wait_for_two_copies(job, 2, killed=new)


def _scale(job: Any, servers: int) -> None:
    scaled = job.command("jobs", "scale", job.name, f"--num_ps={servers}")
    assert scaled.returncode == 0, scaled.stderr


def _newest(checkpoints: Path) -> int:
    return max((step for step, _ in versions(checkpoints)), default=0)


def test_servers_killed_one_at_a_time_repeat_no_training(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path
) -> None:
    """Synchronous training, so that gradients wait on the servers that are killed."""
    checkpoints = tmp_path / "checkpoints"
    for gate in ("start", "epoch-0", "epoch-1", "epoch-2"):
        gates.hold(gate)
    job = start_gated(
        "--num_epochs=3",
        "--num_ps=2",
        "--grads_to_wait=2",
        "--evaluation_steps=20",
        f"--checkpoint_dir={checkpoints}",
        "--checkpoint_steps=2",
        environment={"ELASTICDL_TEST_SLOW": "0.03"},
    )
    gates.wait_for("start", 2)
    # It has no model yet.
    job.kill("ps-0")
    gates.release("start")
    gates.wait_for("epoch-0")
    _wait_for_two_copies(job, 2, killed="ps-0")
    gates.release("epoch-0")
    killed = _kill_while_it_saves(job, checkpoints, over=lambda: gates.passed("epoch-1"))
    gates.wait_for("epoch-1")
    there = _wait_for_two_copies(job, 2, killed=killed)
    killed = _kill_while_buckets_move(job, there)
    # It is trained by those that are left.
    gates.release("epoch-1")
    _wait_for_two_copies(job, 3, killed=killed)
    gates.release("epoch-2")
    job.assert_exact(epochs=3, size=SIZE)
    assert [row["again"] for row in job.audit()["rows"]] == [0] * 3
    assert job.status()["generation"] == 1
    assert "Retrying the checkpoint of step" in (job.folder / "logs" / "master.log").read_text()


def test_all_servers_killed_at_once_restore_last_checkpoint(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    gates.hold("epoch-1")
    job = start_gated(
        "--num_ps=2",
        f"--checkpoint_dir={checkpoints}",
        "--checkpoint_steps=5",
        environment={"ELASTICDL_TEST_SLOW": "0.01"},
    )
    wait_until(lambda: _newest(checkpoints) >= 10, "some checkpoints")
    processes = job.processes()
    for name in ("ps-0", "ps-1"):
        processes[name].send_signal(signal.SIGKILL)
    # One of their replacements.
    job.kill("ps-2")
    wait_until(lambda: job.status()["generation"] > 1, "the model is lost")
    gates.release("epoch-1")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    logs = [path.read_text() for path in (job.folder / "logs").glob("ps-*.log")]
    assert any(f"Restored from {checkpoints}" in log for log in logs), job.logs()
    again = sum(row["again"] for row in job.audit()["rows"])
    # Some of an epoch, and not what was before the checkpoint.
    assert again < SIZE
    workers = {path.stem for path in (job.folder / "logs").glob("worker-*.log")}
    assert workers == {"worker-0", "worker-1"}


def test_hanging_server_is_killed_and_workers_are_kept(start_gated: Callable[..., Any], gates: Any) -> None:
    job = start_gated(
        "--num_ps=2",
        "--stall_factor=5",
        "--stall_floor_seconds=20",
        environment={"ELASTICDL_TEST_SLOW": "0.05"},
    )
    # By then it is known how long a batch takes, and who takes longer could be blamed.
    wait_until(lambda: job.status().get("step", 0) >= 4, "some batches")
    gates.hold("train")
    gates.wait_for_held("train")
    _stop(job.processes()["ps-0"])
    gates.release("train")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert [row["again"] for row in job.audit()["rows"] if row["dataset"] == "training"] == [0] * EPOCHS
    assert job.status()["generation"] == 1
    assert "Killing ps-0: unresponsive for " in (job.folder / "logs" / "master.log").read_text()
    workers = {path.stem for path in (job.folder / "logs").glob("worker-*.log")}
    assert workers == {"worker-0", "worker-1"}


def test_server_that_hangs_before_joining_is_killed(start_gated: Callable[..., Any]) -> None:
    # Long enough for the one in its place, also where that takes twenty times as long as it should.
    job = start_gated("--start_timeout_seconds=20")
    _stop(_spin(lambda: job.processes().get("ps-0"), "ps-0 runs"))
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    log = (job.folder / "logs" / "master.log").read_text()
    assert "ps-0 has joined" not in log, "it was stopped too late"
    assert "Killing ps-0: not joined within " in log


def test_backups_of_restored_model_equal_the_checkpoint(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path
) -> None:
    """Each server is killed once before anything is trained: what is left then was a backup. One of them joined
    later than the other, which learned of the checkpoint before the placement of buckets was known.
    """
    checkpoints = tmp_path / "checkpoints"
    # One worker, so that batches come in one order.
    arguments = ("--num_workers=1", "--num_ps=2", "--num_epochs=2")
    undisturbed = start_gated(*arguments, f"--checkpoint_dir={checkpoints}", "--job_name=undisturbed")
    undisturbed.assert_exact(epochs=EPOCHS, size=SIZE)
    _, after_one = min(versions(checkpoints))
    gates.hold("train")
    job = start_gated(*arguments, f"--checkpoint_dir_for_init={after_one}", "--job_name=restored")
    late = _spin(lambda: job.processes().get("ps-1"), "ps-1 runs")
    _stop(late)
    log = job.folder / "logs" / "master.log"
    wait_until(lambda: "ps-0 has joined" in log.read_text(), "ps-0 has joined")
    late.resume()
    gates.wait_for_held("train")
    for victim in ("ps-1", "ps-0"):
        job.kill(victim)
        _wait_for_two_copies(job, 2, killed=victim)
    gates.release("train")
    assert job.wait() == 0, job.output + job.logs()
    assert job.status()["generation"] == 1
    ends = [each.status()["evaluations"][-1] for each in (undisturbed, job)]
    assert ends[0]["step"] == ends[1]["step"]
    assert ends[1]["metrics"] == pytest.approx(ends[0]["metrics"], rel=1e-6)


def test_worker_is_replaced_while_server_hangs(start_gated: Callable[..., Any], gates: Any) -> None:
    job = start_gated(environment={"ELASTICDL_TEST_SLOW": "0.05"})
    wait_until(lambda: job.status().get("step", 0) >= 4, "some batches")
    gates.hold("train")
    gates.wait_for_held("train", "worker-0")
    server = job.processes()["ps-0"]
    _stop(server)
    job.kill("worker-0")

    def nodes() -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in job.status()["nodes"]}

    wait_until(lambda: nodes().get("worker-2", {}).get("joined"), "another has taken its place")
    # What it has pushed only that server can say.
    assert nodes()["worker-0"]["shards"]
    gates.release("train")
    server.resume()
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert job.status()["generation"] == 1
