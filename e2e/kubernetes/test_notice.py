"""A worker that is deleted gets notice: it does what it has begun, reports it, and ends by itself."""

from __future__ import annotations

from pathlib import Path

from e2e.conftest import wait_until
from e2e.kubernetes.held import HeldJob


def wait_for_notice(held: HeldJob, node: str) -> None:
    wait_until(
        lambda: any(each["name"] == node and each["draining"] for each in held.status()["nodes"]),
        "the master knows that it is leaving",
    )


def test_a_program_ends_its_shard(held: HeldJob) -> None:
    held.limit(3)
    held.start_program("--num_workers=2")
    held.wait_for_held(3, "worker-0", "worker-1")
    held.delete_pod("worker-0")
    wait_for_notice(held, "worker-0")
    held.limit(1000, "worker-0")
    wait_until((held.folder / "ended-worker-0").exists, "it comes to its own end")
    # The other one is held still: what the one that left had begun is done, and nobody else has done it.
    held.wait_for_done(70)
    held.wait_for_held(3, "worker-1", "worker-2")
    assert held.ends_exactly() == [0, 0]


def test_a_worker_of_ours_ends_its_batch(held: HeldJob, digits: Path) -> None:
    held.limit(2)
    held.limit(0, "worker-2")
    held.start_model(
        digits,
        "--num_epochs=1",
        "--minibatch_size=32",
        "--num_minibatches_per_task=4",
        "--num_ps=1",
        "--num_workers=2",
        # However slow the machine is.
        '--cluster_spec_json={"worker_spec": {"terminationGracePeriodSeconds": 600}}',
    )
    # Each in the middle of its third batch.
    held.wait_for_held(2, "worker-0", "worker-1")
    pod = held.pods()["worker-0"]["metadata"]["name"]
    held.delete_pod("worker-0")
    wait_for_notice(held, "worker-0")
    held.limit(1000, "worker-0")
    wait_until(lambda: pod not in held.kubectl.phases(), "it has ended")
    # The others are held still: the third batch was its own, and it told of it.
    held.wait_for_done(5 * 32)
    assert held.ends_exactly(epochs=1, size=1437) == [0]
