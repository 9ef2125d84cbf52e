"""The master is killed, and Kubernetes starts it again; its pod is deleted, and `elasticdl jobs resume` brings the job
back. Its workers never stop.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from e2e.conftest import wait_until
from e2e.kubernetes.held import MASTER, HeldJob

WORKERS = ("worker-0", "worker-1", "worker-2")


def test_killed_and_then_deleted_with_its_journal(held: HeldJob) -> None:
    before = to_the_first_shard(held)
    held.master_process().kill()
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
    goes_on_exactly(held, before, said="going on from a snapshot")


def test_from_a_journal_that_the_old_one_holds_for_a_while(held: HeldJob, tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    journals.mkdir()
    journals.chmod(0o777)
    before = to_the_first_shard(
        held, "--journal_dir=/journals", volumes=f"host_path={journals},mount_path=/journals"
    )
    held.kubectl("delete", "pod", MASTER, "--wait=false")
    held.limit(6)
    with taken(journals):
        held.resume()
        wait_until(
            lambda: "Another master is writing the journal" in held.kubectl.attempt("logs", MASTER).stdout,
            "the new master waits for the journal",
        )
    goes_on_exactly(held, before, said="Continuing from the journal")


def to_the_first_shard(held: HeldJob, *flags: str, volumes: str = "") -> dict[str, str]:
    """Starts a job; the pods of its workers when they are in the middle of their first shards."""
    held.limit(3)
    held.start_program("--num_workers=3", *flags, volumes=volumes)
    held.wait_for_held(3, *WORKERS)
    held.wait_for_done(90)
    return uids(held)


@contextlib.contextmanager
def taken(journals: Path) -> Iterator[None]:
    """The journal, from the end of the master that writes it: as if that one had not ended yet."""
    (lock,) = journals.glob("*/journal/journal.lock")
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def goes_on_exactly(held: HeldJob, before: dict[str, str], *, said: str) -> None:
    held.wait_for_held(6, *WORKERS)
    held.wait_for_done(180)
    assert said in held.kubectl("logs", MASTER)
    # Nobody who knew anything is gone.
    assert held.ends_exactly() == [0, 0]
    assert uids(held) == before


def uids(held: HeldJob) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in held.pods().items()}
