"""A program without parameter servers: whether its workers hold shards is known by its data, not by its flags."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.sections.training import ALLREDUCE
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.programs import HoldTrainingState, OpenDataset
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.master import Master

SPEC = JobSpec.build(job_name="mine", image_name="i", job_command="x", num_workers=2)


@pytest.mark.parametrize("by_steps", [False, True])
def test_recovery_waits_for_workers_that_may_hold_shards(
    tmp_path: Path, nowhere: Any, by_steps: bool
) -> None:
    assert SPEC.training.distribution_strategy == ALLREDUCE

    def master(name: str) -> Master:
        (tmp_path / name).mkdir()
        return Master(
            spec=SPEC, folder=tmp_path / name, platform=nowhere, token="t", environment={}, clock=lambda: 0.0
        )

    async def waits() -> bool:
        first = master("first")
        first.recover()
        for node in first.state.roster.wanted():
            first.do(JoinNode(node=node.name, incarnation="1", address=""))
        data = DatasetAnnouncement(name="data", size=100, batch_size=10, epochs=1, minibatches_per_shard=2)
        first.do(OpenDataset(announcement=data))
        if by_steps:
            first.do(HoldTrainingState(worker="worker-0", dataset="data", older=[]))
        second = master("second")
        second.recover(first.record())
        gathering = asyncio.create_task(second._recovery.run())
        # By its own clock, no time passes.
        done, _ = await asyncio.wait({gathering}, timeout=60 if by_steps else 0.1)
        gathering.cancel()
        for each in (first, second):
            each._journal.close()
            each._events.close()
        return not done

    assert asyncio.run(waits()) is not by_steps
