"""Parameter servers are killed at moments that are bad ones: before there is a model, while a checkpoint is written,
while buckets move, while the model is restored, and all of them at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.conftest import wait_until
from elasticdl.ps.checkpoints import versions

SIZE = 1437
EPOCHS = 2


def _buckets(job: Any) -> dict[str, Any]:
    return dict(job.status().get("buckets") or {})


def _wait_for_two_copies(job: Any, servers: int, *, killed: str) -> set[str]:
    def settled() -> set[str]:
        buckets = _buckets(job)
        there = set(buckets.get("by_server", {}))
        whole = len(there) == servers and not buckets["moving"] and buckets["with_one_copy"] == 0
        # As long as nobody has noticed, everything looks as it was.
        return there if whole and killed not in there else set()

    found: set[str] = wait_until(settled, f"two copies of everything on {servers} servers")
    return found


def _newest(checkpoints: Path) -> int:
    return max((step for step, _ in versions(checkpoints)), default=0)


def test_one_at_a_time_and_nothing_is_trained_again(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path
) -> None:
    """Synchronous training, so that gradients wait on the servers that are killed."""
    checkpoints = tmp_path / "checkpoints"
    for gate in ("start", "epoch-1"):
        gates.hold(gate)
    job = start_gated(
        "--num_ps=2",
        "--grads_to_wait=2",
        "--evaluation_steps=20",
        f"--checkpoint_dir={checkpoints}",
        "--checkpoint_steps=2",
        environment={"ELASTICDL_TEST_SLOW": "0.01"},
    )
    gates.wait_for("start", 2)
    # Nobody has given it the model yet.
    job.kill("ps-0")
    gates.release("start")
    there = _wait_for_two_copies(job, 2, killed="ps-0")
    last = _newest(checkpoints)
    # The hidden folder is there while a checkpoint is written.
    wait_until(
        lambda: list(checkpoints.glob(".*")) or _newest(checkpoints) != last or gates.passed("epoch-1"),
        "a checkpoint is written",
    )
    job.kill(min(there))
    there = _wait_for_two_copies(job, 2, killed=min(there))
    assert job.command("jobs", "scale", job.name, "--num_ps=3").returncode == 0
    wait_until(lambda: len(_buckets(job).get("by_server", {})) == 3, "buckets move to the new server")
    job.kill(min(there))
    _wait_for_two_copies(job, 3, killed=min(there))
    gates.release("epoch-1")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert [row["again"] for row in job.audit()["rows"]] == [0] * EPOCHS
    assert job.status()["generation"] == 1


def test_all_at_once_and_the_last_checkpoint_is_restored(
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
    # One of those who come in their place.
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
