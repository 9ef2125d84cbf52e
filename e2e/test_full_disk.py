"""Disks that fill up: the job ends with the name of what could not be written, and does not hang."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import wait_until
from e2e.plain import Bench

SERVERS = ("--num_workers=2", "--num_ps=1")
BIG = (
    "torch.nn.Linear(2, 2)",
    "torch.nn.Sequential(torch.nn.Linear(2, 500_000), torch.nn.Linear(500_000, 2))",
)


class Disk:
    """A small disk. Without the right to mount, one in a mount namespace of its own, visible to the command only."""

    def __init__(self, folder: Path, kilobytes: int) -> None:
        self.folder = folder
        folder.mkdir()
        size = f"size={kilobytes}k"
        command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
        self.mounted = subprocess.run(command, capture_output=True).returncode == 0
        inside = f'mount -t tmpfs -o {size} tmpfs "$0" && exec "$@"'
        unshare = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, str(folder))
        self.prefix = () if self.mounted else unshare

    def fill(self, pid: int) -> None:
        """As the process sees it."""
        folder = Path(f"/proc/{pid}/root{self.folder}")
        (folder / "filling").write_bytes(bytes(shutil.disk_usage(folder).free))
        assert shutil.disk_usage(folder).free == 0

    def remove(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(bench: Bench, request: pytest.FixtureRequest) -> Iterator[Disk]:
    made = Disk(bench.folder / "disk", request.param)
    bench.prefix = made.prefix
    yield made
    made.remove()


@pytest.mark.parametrize("disk", [256], indirect=True)
def test_journal_on_full_disk_fails_the_job(bench: Bench, disk: Disk) -> None:
    bench.home = disk.folder / "home"
    gate = bench.folder / "gate"
    gate.touch()
    bench.environment["ELASTICDL_TEST_GATE"] = str(gate)
    job = bench.start(*bench.training("--job_name=full", "--minibatch_size=1", "--num_epochs=5", *SERVERS))
    wait_until(lambda: list(bench.folder.glob("gate.reached-*")), "the job trains")
    disk.fill(job.pid)
    gate.unlink()
    ended = bench.finish(job)
    assert ended.code != 0
    assert f"{bench.home}/jobs/full" in ended.output
    assert "no space left" in ended.output or "disk is full" in ended.output
    assert "hint: " in ended.output or "Make room" in ended.output
    assert "started again" not in ended.output
    assert "Traceback" not in ended.output
    if disk.mounted:
        # The record of it can be looked at and removed.
        assert "full" in bench.run("jobs", "list").output
        assert bench.run("jobs", "delete", "full").code == 0


@pytest.mark.parametrize("disk", [1024], indirect=True)
@pytest.mark.parametrize("nodes", [(), SERVERS], ids=["local", "servers"])
def test_full_disk_under_checkpoint(bench: Bench, disk: Disk, nodes: tuple[str, ...]) -> None:
    bench.definition(BIG)
    bench.train(f"--checkpoint_dir={disk.folder}/checkpoints", *nodes).failed(
        f"{disk.folder}/checkpoints", "cannot be written", "Make room there"
    )
    assert not list(disk.folder.glob("checkpoints/version-*"))


@pytest.mark.parametrize("disk", [1024], indirect=True)
def test_full_disk_under_export(bench: Bench, disk: Disk) -> None:
    bench.definition(BIG)
    bench.train(f"--output={disk.folder}/model").failed(
        f"{disk.folder}/model", "the disk is full", "Make room"
    )


@pytest.mark.parametrize("disk", [16], indirect=True)
def test_full_disk_under_predictions(bench: Bench, disk: Disk, plain_checkpoint: Path) -> None:
    bench.predict(plain_checkpoint, "--job_name=p", f"--output={disk.folder}/out.csv").failed(
        f"Cannot write {disk.folder}/", "there is no room", "choose another place with --output"
    )
