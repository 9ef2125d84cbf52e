"""A checkpoint whose model is lost while it is written is none, and the one before is still there to go back to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.checkpointing.checkpoint_cycle import PendingCheckpoint
from elasticdl.master.checkpointing.checkpointer import Checkpointer
from elasticdl.master.commands.checkpoints import FinishCheckpoint
from elasticdl.ps.checkpoint import checkpoint_folders
from elasticdl.ps.checkpoint.partial_folders import partial_folder
from elasticdl.ps.client.coordinator import Coordinator

LEDGER = {"datasets": {"training": {"epoch": 0, "done": 5, "spec": {"size": 10}}}}


class Master:
    """A job of one worker that has two checkpoints to save."""

    def __init__(self, folder: Path) -> None:
        self.spec = JobSpec(kind="train")
        self.folder = folder
        self.run_id = "run"
        self.plan = SimpleNamespace(
            servers=False, worker_owns_state=True, shard_size=8, shuffle=False, seed=0, allreduce=False
        )
        placing = SimpleNamespace(addresses=dict)
        self.state = SimpleNamespace(
            cycle=SimpleNamespace(pending=None), generation=1, placing=placing, evaluation=None, outcome=""
        )
        self.done: list[str] = []

    def begin_saving(self, step: int) -> None:
        self.state.cycle.pending = PendingCheckpoint(barrier=step, step=step, epoch=0, ledger=LEDGER)

    def wake(self) -> None:
        pass

    def lose_model(self) -> None:
        self.state.cycle.pending = None
        self.state.generation += 1

    def do(self, command: FinishCheckpoint) -> None:
        self.done.append(command.error or Path(command.path).name)
        self.state.cycle.pending = None


def test_the_one_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master: Any = Master(tmp_path)
    checkpointer = Checkpointer(master, Coordinator("token"))
    master.begin_saving(10)
    asyncio.run(checkpointer.save())
    write = checkpoint_folders.write_manifest

    def write_and_lose(*given: Any, **options: Any) -> None:
        write(*given, **options)
        master.lose_model()

    monkeypatch.setattr(checkpoint_folders, "write_manifest", write_and_lose)
    master.begin_saving(20)
    asyncio.run(checkpointer.save())
    assert master.done == ["version-10"]
    assert [path.name for path in checkpointer.folder().iterdir()] == ["version-10"]


def test_one_that_is_void_begins_no_other_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server stops writing the first because the second is wanted of it; that the master hears late."""
    master: Any = Master(tmp_path)
    master.plan.servers = True
    master.state.placing.addresses = lambda: {0: "ps-0:1"}
    checkpointer = Checkpointer(master, Coordinator("token"))

    async def stopped(*given: Any) -> Any:
        master.lose_model()
        master.begin_saving(6)
        assert checkpointer.is_to_save()
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing, None, None)

    async def at_once(seconds: float) -> None:
        pass

    monkeypatch.setattr(checkpointer, "_save_servers", stopped)
    monkeypatch.setattr(asyncio, "sleep", at_once)
    master.begin_saving(5)
    assert checkpointer.is_to_save()
    asyncio.run(checkpointer.save())
    assert not checkpointer.is_to_save()
    assert master.done == []


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT])
def test_unwritable_checkpoint_is_reported_and_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode
) -> None:
    master: Any = Master(tmp_path)
    master.plan.servers = True
    checkpointer = Checkpointer(master, Coordinator("token"))

    async def refused(*given: Any) -> Any:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(code, nothing, nothing, "there is no such copy", None)

    monkeypatch.setattr(checkpointer, "_save_servers", refused)
    master.begin_saving(5)
    assert checkpointer.is_to_save()
    asyncio.run(checkpointer.save())
    assert master.done == ["there is no such copy"]
    assert list(checkpointer.folder().iterdir()) == []


def test_checkpoint_without_model_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master: Any = Master(tmp_path)
    checkpointer = Checkpointer(master, Coordinator("token"))

    async def sweep(*given: Any) -> None:
        master.lose_model()

    monkeypatch.setattr(checkpointer, "_sweep", sweep)
    master.begin_saving(5)
    asyncio.run(checkpointer.save())
    assert not checkpointer.folder().exists()


def test_partial_folder_of_own_run_is_removed_before_next_checkpoint(tmp_path: Path) -> None:
    """A master was killed while it wrote the checkpoint of barrier 5; the restarted master gave it up."""
    master: Any = Master(tmp_path)
    checkpointer = Checkpointer(master, Coordinator("token"))
    for run in (master.run_id, "another"):
        partial_folder(checkpointer.folder(), 5, run=run).mkdir(parents=True)
    master.begin_saving(10)
    asyncio.run(checkpointer.save())
    names = sorted(path.name for path in checkpointer.folder().iterdir())
    assert names == [".version-5.another.partial", "version-10"]
