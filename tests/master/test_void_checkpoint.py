"""A checkpoint whose model is lost while it is written is none, and the one before is still there to go back to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.cuts import Saving
from elasticdl.master.cutting import Cutting
from elasticdl.ps import checkpoints
from elasticdl.ps.coordinator import Coordinator
from elasticdl.ps.partials import partial_folder

LEDGER = {"datasets": {"training": {"epoch": 0, "done": 5, "spec": {"size": 10}}}}


class Master:
    """A job of one worker that has two cuts to save."""

    def __init__(self, folder: Path) -> None:
        self.spec = JobSpec(kind="train")
        self.folder = folder
        self.run_id = "run"
        self.plan = SimpleNamespace(
            servers=False, worker_owns_state=True, shard_size=8, shuffle=False, seed=0, allreduce=False
        )
        placing = SimpleNamespace(addresses=dict)
        self.state = SimpleNamespace(saving=None, generation=1, placing=placing, evaluation=None)
        self.done: list[str] = []

    def begin_saving(self, step: int) -> None:
        self.state.saving = Saving(cut=step, step=step, epoch=0, ledger=LEDGER)

    def lose_model(self) -> None:
        self.state.saving = None
        self.state.generation += 1

    def do(self, event: str, *, cut: int, path: str, error: str) -> None:
        assert (event, error) == ("checkpoint_done", "")
        self.done.append(Path(path).name)
        self.state.saving = None


def test_the_one_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master: Any = Master(tmp_path)
    cutting = Cutting(master, Coordinator("token"))
    master.begin_saving(10)
    asyncio.run(cutting.save())
    write = checkpoints.write_manifest

    def write_and_lose(*given: Any) -> None:
        write(*given)
        master.lose_model()

    monkeypatch.setattr(checkpoints, "write_manifest", write_and_lose)
    master.begin_saving(20)
    asyncio.run(cutting.save())
    assert master.done == ["version-10"]
    assert [path.name for path in cutting.folder().iterdir()] == ["version-10"]


def test_what_was_left_of_one_goes_before_the_next_is_written(tmp_path: Path) -> None:
    """A master was killed while it wrote the one of cut 5, and had it given up when it was back."""
    master: Any = Master(tmp_path)
    cutting = Cutting(master, Coordinator("token"))
    for run in (master.run_id, "another"):
        partial_folder(cutting.folder(), 5, run=run).mkdir(parents=True)
    master.begin_saving(10)
    asyncio.run(cutting.save())
    names = sorted(path.name for path in cutting.folder().iterdir())
    assert names == [".version-5.another.partial", "version-10"]
