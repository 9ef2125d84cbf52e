"""The phases of the checkpoint cycle, and what survives them."""

from __future__ import annotations

import json

import pytest

from elasticdl.master.checkpointing.checkpoint_cycle import CheckpointCycle, CheckpointPhase
from elasticdl.master.commands.checkpoints import ReachBarrier, SavedCheckpoint
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.roster import Roster
from elasticdl.master.settings import JobSettings
from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile

SETTINGS = JobSettings(checkpoint_steps=5)
FILE = SavedFile(name="worker.edl", bytes=1, crc32=2)


@pytest.fixture
def cycle() -> CheckpointCycle:
    ledger = Ledger()
    ledger.add(SETTINGS.dataset("training", 100))
    return CheckpointCycle(
        settings=SETTINGS, ledger=ledger, roster=Roster(max_failures=0, targets=SETTINGS.targets)
    )


def phase_of(cycle: CheckpointCycle) -> CheckpointPhase:
    return cycle.phase


def copy_of(cycle: CheckpointCycle) -> CheckpointCycle:
    copied = CheckpointCycle(settings=SETTINGS, ledger=cycle._ledger, roster=cycle._roster)
    copied.restore(json.loads(json.dumps(cycle.snapshot())))
    return copied


def test_barrier_without_save_returns_to_training(cycle: CheckpointCycle) -> None:
    cycle.request_barrier(evaluate=True, save=False)
    assert phase_of(cycle) is CheckpointPhase.BARRIER
    cycle.pass_barrier()
    assert phase_of(cycle) is CheckpointPhase.TRAINING
    assert (cycle.barrier, cycle.pending, cycle.passed) == (None, None, 1)


def test_barrier_with_save_is_written_then_saved(cycle: CheckpointCycle) -> None:
    cycle.request_barrier(evaluate=False, save=True)
    cycle.reach(ReachBarrier(worker="worker-0", barrier=1, files=[FILE]))
    cycle.pass_barrier()
    assert phase_of(cycle) is CheckpointPhase.WRITING
    assert cycle.pending is not None
    assert cycle.pending.files == [FILE]
    cycle.finish_writing("version-0", for_stop=True)
    assert phase_of(cycle) is CheckpointPhase.TRAINING
    assert cycle.saved is not None
    assert cycle.saved.path == "version-0"
    assert cycle.is_saved_for_stop


def test_barrier_while_a_checkpoint_is_written_is_refused(cycle: CheckpointCycle) -> None:
    cycle.request_barrier(evaluate=False, save=True)
    cycle.pass_barrier()
    with pytest.raises(AssertionError, match="from writing to barrier"):
        cycle.request_barrier(evaluate=True, save=False)


def test_worker_at_another_barrier_does_not_count(cycle: CheckpointCycle) -> None:
    cycle.request_barrier(evaluate=True, save=False)
    cycle.reach(ReachBarrier(worker="worker-0", barrier=7))
    assert cycle.barrier is not None
    assert cycle.barrier.reached == []


@pytest.mark.parametrize("written", [False, True])
def test_cancel_uses_up_the_number_and_keeps_the_saved_checkpoint(
    cycle: CheckpointCycle, written: bool
) -> None:
    cycle.set_saved(SavedCheckpoint(path="before", step=3, ledger=None))
    cycle.request_barrier(evaluate=False, save=True)
    if written:
        cycle.pass_barrier()
    cycle.cancel()
    assert phase_of(cycle) is CheckpointPhase.TRAINING
    assert cycle.passed == 1
    assert cycle.saved is not None
    assert cycle.saved.path == "before"
    cycle.request_barrier(evaluate=False, save=True)
    assert cycle.barrier is not None
    assert cycle.barrier.number == 2


def test_checkpoint_is_due_once_per_checkpoint_steps(cycle: CheckpointCycle) -> None:
    cycle._ledger.steps = 11
    due = [cycle.is_due]
    cycle.request_barrier(evaluate=False, save=True)
    cycle.pass_barrier()
    due.append(cycle.is_due)
    cycle._ledger.steps = 15
    due.append(cycle.is_due)
    assert due == [True, False, True]


def test_restart_repeats_the_checkpoint_with_an_unused_number(cycle: CheckpointCycle) -> None:
    cycle._ledger.steps = 6
    cycle.request_barrier(evaluate=False, save=True)
    cycle.pass_barrier()
    cycle.close_epoch(0)
    cycle.restart(skipped_numbers=100, reopened_epoch=0)
    assert phase_of(cycle) is CheckpointPhase.TRAINING
    assert cycle.is_due
    assert (cycle.passed, cycle.closed_epoch) == (101, -1)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_every_phase_survives_a_snapshot(cycle: CheckpointCycle, steps: int) -> None:
    moves = [
        lambda: cycle.request_barrier(evaluate=False, save=True),
        lambda: cycle.reach(ReachBarrier(worker="worker-0", barrier=1, files=[FILE])),
        cycle.pass_barrier,
    ]
    for move in moves[:steps]:
        move()
    restored = copy_of(cycle)
    assert restored.phase is cycle.phase
    assert (restored.barrier, restored.pending) == (cycle.barrier, cycle.pending)
    assert restored.snapshot() == cycle.snapshot()


def test_requested_checkpoint_is_one_of_a_later_barrier(cycle: CheckpointCycle) -> None:
    cycle.request_barrier(evaluate=False, save=True)
    cycle.pass_barrier()
    # What is being written was trained before.
    cycle.request_checkpoint()
    cycle.finish_writing("version-0", for_stop=False)
    assert cycle.is_requested
    assert copy_of(cycle).is_requested
    cycle.request_barrier(evaluate=False, save=True)
    cycle.pass_barrier()
    assert cycle.is_requested
    cycle.finish_writing("version-1", for_stop=False)
    assert not cycle.is_requested
