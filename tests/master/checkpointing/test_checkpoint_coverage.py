"""A checkpoint that would not have every bucket of the model, and each once, is not written, and the job reports it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.checkpointing.checkpoint_cycle import PendingCheckpoint
from elasticdl.master.checkpointing.checkpointer import Checkpointer
from elasticdl.master.commands.checkpoints import FinishCheckpoint
from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile, file_name
from elasticdl.ps.core.buckets import BUCKETS, first_map

LEDGER = {"datasets": {"training": {"epoch": 0, "done": 5, "spec": {"size": 10}}}}


class Servers:
    """All write what they are asked to."""

    def __init__(self) -> None:
        self.written: list[int] = []

    async def save_all(
        self, addresses: dict[int, str], name: str, folder: Path, *, buckets: Any, since: str
    ) -> Any:
        self.written = sorted(bucket for server in addresses for bucket in buckets[server])
        names = [file_name(number, len(addresses)) for number in range(len(addresses))]
        for name in names:
            (folder / name).write_text("")
        return [SavedFile(name=name, bytes=0, crc32=0) for name in names], True

    async def release_all(self, addresses: dict[int, str], name: str) -> None: ...


class Master:
    """A job of three servers that has a checkpoint to save."""

    def __init__(self, folder: Path, present: list[int], buckets: Any) -> None:
        self.spec = JobSpec(kind="train")
        self.folder = folder
        self.run_id = "run"
        self.plan = SimpleNamespace(
            servers=3, worker_owns_state=False, shard_size=8, shuffle=False, seed=0, allreduce=False
        )
        addresses = {server: f"here:{server}" for server in present}
        placing = SimpleNamespace(addresses=lambda: addresses, map=buckets)
        pending = PendingCheckpoint(barrier=1, step=10, epoch=0, ledger=LEDGER)
        self.state = SimpleNamespace(
            cycle=SimpleNamespace(pending=pending),
            generation=1,
            placing=placing,
            evaluation=None,
            outcome="",
        )
        self.done: list[FinishCheckpoint] = []

    def do(self, command: FinishCheckpoint) -> None:
        self.done.append(command)

    def save(self) -> Servers:
        servers = Servers()
        master: Any = self
        asyncio.run(Checkpointer(master, servers).save())  # type: ignore[arg-type]
        return servers


def test_all_there(tmp_path: Path) -> None:
    master = Master(tmp_path, [0, 1, 2], first_map(3))
    assert master.save().written == list(range(BUCKETS))
    assert master.done == [FinishCheckpoint(barrier=1, path=str(tmp_path / "checkpoints" / "version-10"))]


def test_a_server_with_nothing_of_its_own_writes_nothing(tmp_path: Path) -> None:
    master = Master(tmp_path, [0, 1, 2], first_map([0, 2]))
    assert master.save().written == list(range(BUCKETS))
    files = sorted(path.name for path in (tmp_path / "checkpoints" / "version-10").glob("*.edl"))
    assert files == ["ps-0-of-2.edl", "ps-1-of-2.edl"]


@pytest.mark.parametrize(("present", "gone"), [([0, 2], [1]), ([], [0, 1, 2])], ids=["one", "all"])
def test_a_primary_that_is_not_there(tmp_path: Path, present: list[int], gone: list[int]) -> None:
    master = Master(tmp_path, present, first_map(3))
    missing = sum(len(first_map(3).primaries_of(server)) for server in gone)
    assert master.save().written == []
    (said,) = master.done
    assert said.path == ""
    assert f"{missing} would be in no file and 0 in more than one" in said.error
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_servers_that_go_because_the_job_is_over(tmp_path: Path) -> None:
    master = Master(tmp_path, [], first_map(3))
    master.state.outcome = "failed"
    master.save()
    assert master.done == []
    assert not (tmp_path / "checkpoints").exists()


def test_a_bucket_of_two_primaries(tmp_path: Path) -> None:
    both = SimpleNamespace(primaries_of=lambda server: tuple(range(server, BUCKETS)))
    master = Master(tmp_path, [0, 1], both)
    assert master.save().written == []
    assert "0 would be in no file and 255 in more than one" in master.done[0].error
