"""Disks that fill up: the job ends with the name of what could not be written, and does not hang."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import wait_until
from e2e.plain import Bench

BIG = (
    "torch.nn.Linear(2, 2)",
    "torch.nn.Sequential(torch.nn.Linear(2, 500_000), torch.nn.Linear(500_000, 2))",
)


class Disk:
    """A small one of its own where we may mount, else a limit on the size of files: to a program it is the same."""

    def __init__(self, folder: Path, kilobytes: int) -> None:
        self.folder = folder
        self._limit = kilobytes * 1024
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
        self.mounted = subprocess.run(command, capture_output=True).returncode == 0

    def limit(self) -> None:
        """In a process that is to have no more room than there is."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._limit, self._limit))

    def fill(self) -> None:
        if self.mounted:
            filling = bytes(shutil.disk_usage(self.folder).free)
            (self.folder / "filling").write_bytes(filling)
            assert shutil.disk_usage(self.folder).free == 0

    def remove(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(bench: Bench, request: pytest.FixtureRequest) -> Iterator[Disk]:
    made = Disk(bench.folder / "disk", request.param)
    bench.before = made.limit
    yield made
    made.remove()


@pytest.mark.parametrize("disk", [256], indirect=True)
@pytest.mark.parametrize("nodes", [(), ("--num_workers=2", "--num_ps=1")], ids=["local", "servers"])
def test_under_the_journal(bench: Bench, disk: Disk, nodes: tuple[str, ...]) -> None:
    if disk.mounted:
        bench.home = disk.folder / "home"
        bench.home.mkdir()
    else:
        # Enough for every file but a journal of many batches.
        bench.before = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))
    gate = bench.folder / "gate"
    gate.touch()
    bench.environment["ELASTICDL_TEST_GATE"] = str(gate)
    job = bench.start(*bench.training("--job_name=full", "--minibatch_size=1", "--num_epochs=5", *nodes))
    wait_until(lambda: list(bench.folder.glob("gate.reached-*")), "the job trains")
    disk.fill()
    gate.unlink()
    ended = bench.finish(job)
    assert ended.code != 0
    assert f"{bench.home}/jobs/full" in ended.output
    assert "no space left" in ended.output or "disk is full" in ended.output
    assert "hint: " in ended.output or "Make room" in ended.output
    assert "started again" not in ended.output
    assert "Traceback" not in ended.output
    # The record of it can be looked at and removed.
    assert "full" in bench.run("jobs", "list").output
    assert bench.run("jobs", "delete", "full").code == 0


@pytest.mark.parametrize("disk", [1024], indirect=True)
@pytest.mark.parametrize("nodes", [(), ("--num_workers=2", "--num_ps=1")], ids=["local", "servers"])
def test_under_a_checkpoint(bench: Bench, disk: Disk, nodes: tuple[str, ...]) -> None:
    bench.definition(BIG)
    bench.train(f"--checkpoint_dir={disk.folder}/checkpoints", *nodes).failed(
        f"{disk.folder}/checkpoints", "cannot be written", "Make room there"
    )
    assert not list(disk.folder.glob("checkpoints/version-*"))


@pytest.mark.parametrize("disk", [1024], indirect=True)
def test_under_an_export(bench: Bench, disk: Disk) -> None:
    bench.definition(BIG)
    # Where files are limited, so is the checkpoint before the export.
    place = disk.folder if disk.mounted else bench.home
    bench.train(f"--output={disk.folder}/model").failed(f"{place}/", "written", "Make room")


@pytest.mark.parametrize("disk", [16], indirect=True)
def test_under_predictions(bench: Bench, disk: Disk, plain_checkpoint: Path) -> None:
    if not disk.mounted:
        bench.before = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
    bench.predict(plain_checkpoint, "--job_name=p", f"--output={disk.folder}/out.csv").failed(
        f"Cannot write {disk.folder}/", "there is no room", "choose another place with --output"
    )
