"""The master's pod is deleted; `elasticdl jobs resume` brings the job back, and its workers never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.kubernetes.held import MASTER, HeldJob

WORKERS = ("worker-0", "worker-1", "worker-2")


@pytest.mark.parametrize(
    "said", ["going on from a snapshot", "Continuing from the journal"], ids=["snapshot", "journal"]
)
def test_resumed(held: HeldJob, tmp_path: Path, said: str) -> None:
    flags, volumes = [], ""
    if "journal" in said:
        (tmp_path / "journals").mkdir(mode=0o777)
        (tmp_path / "journals").chmod(0o777)
        flags = ["--journal_dir=/journals"]
        volumes = f"host_path={tmp_path}/journals,mount_path=/journals"
    held.limit(3)
    held.start_program("--num_workers=3", *flags, volumes=volumes)
    held.wait_for_held(3, *WORKERS)
    held.wait_for_done(90)
    before = {name: pod["metadata"]["uid"] for name, pod in held.pods().items()}

    held.kubectl("delete", "pod", MASTER, "--wait=false")
    # To the middle of their second shards.
    held.limit(6)
    held.resume()
    held.wait_for_held(6, *WORKERS)
    held.wait_for_done(180)
    assert said in held.kubectl("logs", MASTER)

    # Nobody who knew anything is gone.
    assert held.ends_exactly() == [0, 0]
    after = {name: pod["metadata"]["uid"] for name, pod in held.pods().items()}
    assert after == before
