"""Parameter servers are killed, added and removed while a job trains: no restarts, nothing is trained again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from e2e.conftest import wait_until

SIZE = 1437
EPOCHS = 2


def _assert_nothing_lost(job: Any) -> None:
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert [row["again"] for row in job.audit()["rows"]] == [0] * EPOCHS
    assert job.status()["generation"] == 1
    workers = {path.stem for path in (job.folder / "logs").glob("worker-*.log")}
    assert workers == {"worker-0", "worker-1"}


def _wait_for_buckets(job: Any, servers: set[str]) -> None:
    """Everything is on these servers, twice if there are two."""

    def settled() -> bool:
        buckets = job.status()["buckets"]
        return (
            buckets.get("by_server", {}).keys() == servers
            and not buckets["moving"]
            and (len(servers) == 1 or buckets["with_one_copy"] == 0)
        )

    wait_until(settled, f"all buckets are on {sorted(servers)}")


def test_killed_server_is_replaced(start_gated: Callable[..., Any], gates: Any) -> None:
    for gate in ("train", "epoch-1"):
        gates.hold(gate)
    job = start_gated("--num_ps=2", "--evaluation_steps=20", "--max_bad_gradients=1")
    gates.wait_for("train", 2)
    # Both workers are in the middle of a batch; one of them computes what is no number.
    (gates.folder / "nan").touch()
    job.kill("ps-0")
    gates.release("train")
    for victim, replacement in (("ps-1", "ps-2"), ("ps-2", "ps-3")):
        # There is a copy of everything again: of two servers that hold the same, one must live.
        _wait_for_buckets(job, {victim, replacement})
        job.kill(victim)
    _wait_for_buckets(job, {"ps-3", "ps-4"})
    gates.release("epoch-1")
    _assert_nothing_lost(job)
    # The worker reported that batch to none of the current servers.
    assert job.status()["batches_without_effect"] == 1
    assert "1 batch had no effect: the gradients were not finite (--max_bad_gradients)." in job.output
    assert "is not finite (NaN or infinity): this batch has no effect. So far 1 had none." in job.logs()


def test_servers_are_scaled_up_and_down(start_gated: Callable[..., Any], gates: Any) -> None:
    """With an optimizer of the user's own, whose slots move along."""
    for gate in ("train", "epoch-1"):
        gates.hold(gate)
    job = start_gated("--num_ps=1", "--evaluation_steps=20", "--optimizer=own_optimizer")
    gates.wait_for("train", 2)
    assert job.command("jobs", "scale", job.name, "--num_ps=3").returncode == 0
    gates.release("train")
    _wait_for_buckets(job, {"ps-0", "ps-1", "ps-2"})
    assert job.command("jobs", "scale", job.name, "--num_ps=1").returncode == 0
    _wait_for_buckets(job, {"ps-0"})
    wait_until(
        lambda: [n for n in job.processes() if n.startswith("ps-")] == ["ps-0"], "the others have gone"
    )
    gates.release("epoch-1")
    _assert_nothing_lost(job)
    # Chance is 0.1. It has been measured to come to 0.9.
    assert job.status()["evaluations"][-1]["metrics"]["accuracy"] > 0.6


def test_failing_custom_optimizer_fails_the_job(start_gated: Callable[..., Any], gates: Any) -> None:
    job = start_gated("--num_ps=2", "--optimizer=careless_optimizer")
    assert job.wait() != 0
    assert "The optimizer Careless failed on layer." in job.output
    assert 'e2e/zoo/gated/momentum.py"' in job.output
    assert "KeyError: 'missing'" in job.output
    assert "elasticdl/ps/" not in job.output
    job.assert_nothing_left()
