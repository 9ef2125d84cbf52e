"""The master is killed, and Kubernetes starts it again; its pod is deleted, and `elasticdl jobs resume` brings the job
back. Its workers never stop.
"""

from __future__ import annotations

import json

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import machines
from e2e.kubernetes.held import BATCH, MASTER, HeldJob
from e2e.kubernetes.host_access import host_access

WORKERS = ("worker-0", "worker-1", "worker-2")


def test_job_survives_killed_master_and_deleted_journal(held: HeldJob) -> None:
    before = to_the_first_shard(held)
    master = held.kubectl.get("pod", MASTER)
    with host_access(held.kubectl, master["spec"]["nodeName"]) as machine:
        machine.kill({"ELASTICDL_PLATFORM": "kubernetes", "MY_POD_IP": master["status"]["podIP"]})
    # To the end of their first shards.
    held.limit(4)
    held.wait_for_held(4, *WORKERS)
    held.wait_for_done(120)
    # The kubelet tells it a moment after the new one has begun.
    wait_until(
        lambda: held.kubectl.get("pod", MASTER)["status"]["containerStatuses"][0]["restartCount"] == 1,
        "the master's container has been restarted",
    )
    assert "Continuing from the journal" in held.kubectl("logs", MASTER)
    held.kubectl("delete", "pod", MASTER, "--wait=false")
    # To the middle of their second shards.
    held.limit(6)
    held.resume()
    goes_on_exactly(held, before, said="Recovering without a journal: from a snapshot")


def test_next_master_waits_for_journal_lock_of_the_old_one(held: HeldJob) -> None:
    with host_access(held.kubectl, machines(held.kubectl)[0]) as machine:
        before = to_the_first_shard(
            held,
            "--journal_dir=/journals",
            f"--cluster_spec_json={json.dumps({'master_spec': machine.here})}",
            volumes=f"host_path={machine.folder},mount_path=/journals",
            batches=2,
        )
        held.kubectl("delete", "pod", MASTER, "--wait=true")
        # There is no master, and no worker stops for that.
        held.limit(3)
        held.wait_for_held(3, *WORKERS)
        held.limit(6)
        lock = machine.sh("ls */journal/journal.lock").strip()
        # As if the old one had not ended yet.
        with machine.locked(lock):
            held.resume()
            wait_until(
                lambda: "is held by another master, pod" in held.kubectl.attempt("logs", MASTER).stdout,
                "the new master waits for the journal",
            )
        goes_on_exactly(held, before, said="Continuing from the journal")


def to_the_first_shard(held: HeldJob, *flags: str, volumes: str = "", batches: int = 3) -> dict[str, str]:
    """Starts a job; the pods of its workers when they are in the middle of their first shards."""
    held.limit(batches)
    held.start_program(f"--num_workers={len(WORKERS)}", *flags, volumes=volumes)
    held.wait_for_held(batches, *WORKERS)
    held.wait_for_done(len(WORKERS) * batches * BATCH)
    return held.uids()


def goes_on_exactly(held: HeldJob, before: dict[str, str], *, said: str) -> None:
    held.wait_for_held(6, *WORKERS)
    held.wait_for_done(180)
    assert said in held.kubectl("logs", MASTER)
    # No process with state of the job is gone.
    assert held.ends_exactly() == [0, 0]
    assert held.uids() == before
