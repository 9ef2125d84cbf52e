"""Journal commands: each has a handler, and each survives the way through the journal."""

from __future__ import annotations

import dataclasses
import json
import pkgutil
from importlib import import_module
from typing import Any

import pytest

from elasticdl.master import commands
from elasticdl.master.commands.checkpoints import ReachBarrier
from elasticdl.master.commands.codec import UnknownCommand, decode, encode
from elasticdl.master.commands.command import Command, registered_commands
from elasticdl.master.commands.job import StopJob
from elasticdl.master.commands.nodes import ObserveNode, PushCredit
from elasticdl.master.commands.programs import OpenDataset
from elasticdl.master.commands.shards import ReportProgress, UnreadableSamples
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus
from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile

STATUS = NodeStatus(
    name="worker-3", role="worker", phase=NodePhase.FAILED, reason=EndReason.ERROR, exit_code=1
)


def defined_commands() -> set[type[Command[Any]]]:
    """All command classes in the modules of the package."""
    modules = [
        import_module(f"{commands.__name__}.{found.name}")
        for found in pkgutil.iter_modules(commands.__path__)
    ]
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    return {one for one in classes if issubclass(one, Command) and one is not Command}


def test_registry_has_every_command() -> None:
    assert set(registered_commands().values()) == defined_commands()


def test_job_state_handles_every_command() -> None:
    assert JobState(JobSettings()).handled == defined_commands()


@pytest.mark.parametrize("command", sorted(defined_commands(), key=repr))
def test_command_is_a_frozen_dataclass(command: type[Any]) -> None:
    assert dataclasses.is_dataclass(command)
    assert command.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "command",
    [
        StopJob(reason="enough"),
        ObserveNode(status=STATUS),
        ObserveNode(status=STATUS, credit=PushCredit(lease_id=1, position=2, batches=3), in_doubt=True),
        ReachBarrier(worker="worker-0", barrier=2, files=[SavedFile(name="a", bytes=1, crc32=2)]),
        OpenDataset(
            announcement=DatasetAnnouncement(
                name="d", size=9, batch_size=2, epochs=1, minibatches_per_shard=4, drop_remainder=True
            )
        ),
        ReportProgress(
            worker="worker-0",
            report_id=1,
            progress=[(7, 8, 2, False)],
            bad=[UnreadableSamples(dataset="d", start=0, end=1, where="part-0", reason="checksum")],
            loss_sum=0.5,
            loss_batches=2,
            stop_training=False,
        ),
    ],
)
def test_command_read_from_its_record_is_equal(command: Command[Any]) -> None:
    assert decode(json.loads(json.dumps(encode(command)))) == command


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"do": "snapshot", "with": {}}, "'snapshot'"),
        ({"do": "StopJob", "with": {}}, "reason"),
        ({"do": "StopJob", "with": {"reason": "a", "then": "b"}}, "then"),
        ({"do": "ObserveNode", "with": {"status": {"name": "worker-0", "phase": "asleep"}}}, "asleep"),
    ],
)
def test_record_that_is_no_command_is_refused(record: dict[str, Any], named: str) -> None:
    with pytest.raises(UnknownCommand, match=named):
        decode(record)


def test_two_commands_of_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match="StopJob"):
        type("StopJob", (Command,), {})
