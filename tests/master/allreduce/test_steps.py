"""Steps of all-reduce in the job's state: places in the order, and who has the model."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.master.commands.checkpoints import ReachBarrier
from elasticdl.master.commands.nodes import ScaleRole
from elasticdl.master.commands.programs import (
    AdvanceSteps,
    HoldTrainingState,
    OpenDataset,
    ReleaseTrainingState,
)
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.ledger.ledger import DatasetSpec, Ledger, LedgerError
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason
from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile


def _ledger(*, size: int = 100, batch: int = 7, epochs: int = 2, shuffle: bool = True) -> Ledger:
    ledger = Ledger()
    ledger.add(
        DatasetSpec(
            name="training",
            size=size,
            shard_size=batch,
            batch_size=batch,
            epochs=epochs,
            shuffle=shuffle,
            seed=3,
            gated=True,
        )
    )
    return ledger


def test_places_add_up_to_all_samples_wherever_the_small_shard_is() -> None:
    ledger = _ledger()
    starts = ledger.order("training", epoch=0, first=0, count=100)
    assert sorted(starts) == list(range(0, 100, 7))
    for place, start in enumerate(starts, start=1):
        done = ledger.pass_shards("training", epoch=0, place=place, steps=place)
        assert done == min(start + 7, 100) - start
    assert ledger.epoch_done("training")
    assert ledger.check() == []


def test_a_place_is_passed_once() -> None:
    ledger = _ledger()
    assert ledger.pass_shards("training", epoch=0, place=6, steps=2) > 0
    assert ledger.pass_shards("training", epoch=0, place=6, steps=2) == 0
    assert ledger.pass_shards("training", epoch=0, place=3, steps=1) == 0
    assert ledger.steps == 2


def test_the_order_is_that_of_the_ledger_in_every_epoch() -> None:
    ledger = _ledger()
    orders = [ledger.order("training", epoch=epoch, first=0, count=15) for epoch in (0, 1)]
    assert orders[0] != orders[1]
    ledger.pass_shards("training", epoch=0, place=15, steps=5)
    ledger.open_next_epoch("training")
    assert [ledger.order("training", epoch=epoch, first=0, count=15) for epoch in (0, 1)] == orders


def test_places_that_are_not_there() -> None:
    ledger = _ledger()
    for epoch, place in ((0, 16), (2, 0), (-1, 0)):
        with pytest.raises(LedgerError):
            ledger.pass_shards("training", epoch=epoch, place=place, steps=1)


def _job(toy_job: Any, **more: Any) -> Any:
    job = toy_job(JobSettings(workers=3, allreduce=True, batch_size=10, shard_size=10, epochs=2, **more))
    job.start_nodes()
    return job


def _advance(job: Any, worker: str, at: int, step: int, epoch: int = 0) -> None:
    job.do(
        AdvanceSteps(
            worker=worker,
            report_id=step,
            dataset="training",
            epoch=epoch,
            at=at,
            step=step,
            loss_sum=0.0,
            loss_steps=0,
            stop_training=False,
            bad=[],
        )
    )


def test_model_is_lost_with_its_last_holder(toy_job: Any) -> None:
    job = _job(toy_job)
    for worker in ("worker-0", "worker-1"):
        job.do(HoldTrainingState(worker=worker, dataset="training", older=[]))
    _advance(job, "worker-0", at=3, step=1)
    job.end("worker-0", EndReason.KILLED)
    # This one has not got it yet.
    job.end("worker-2", EndReason.KILLED)
    assert job.state.generation == 1
    assert job.state.ledger.done("training", 0) == 30
    job.end("worker-1", EndReason.KILLED)
    assert job.state.generation == 2
    assert job.state.ledger.done("training", 0) == 0
    assert job.state.ledger.again("training", 0) == 30
    assert job.replayed().snapshot() == job.state.snapshot()


def test_a_model_that_is_lost_after_its_last_step_is_lost(toy_job: Any) -> None:
    """It is yet to be evaluated, saved and exported."""
    job = toy_job(
        JobSettings(workers=2, allreduce=True, batch_size=10, shard_size=10, epochs=1, has_output=True)
    )
    job.start_nodes()
    for worker in ("worker-0", "worker-1"):
        job.do(HoldTrainingState(worker=worker, dataset="training", older=[]))
    _advance(job, "worker-0", at=10, step=5)
    assert job.state.ledger.finished("training")
    job.end("worker-0", EndReason.KILLED)
    assert job.state.generation == 1
    job.end("worker-1", EndReason.KILLED)
    assert job.state.generation == 2
    assert job.state.ledger.again("training", 0) == 100


def test_leader_is_oldest_holder_of_the_model(toy_job: Any) -> None:
    job = _job(toy_job)
    assert job.state.leader().name == "worker-0"
    job.do(HoldTrainingState(worker="worker-2", dataset="training", older=[]))
    job.do(HoldTrainingState(worker="worker-1", dataset="training", older=["worker-2"]))
    assert job.state.leader().name == "worker-2"
    job.end("worker-2", EndReason.KILLED)
    assert job.state.leader().name == "worker-1"


def test_checkpoint_of_killed_writer_is_incomplete(toy_job: Any) -> None:
    job = _job(toy_job)
    job.do(HoldTrainingState(worker="worker-0", dataset="training", older=[]))
    job.do(HoldTrainingState(worker="worker-1", dataset="training", older=[]))
    _advance(job, "worker-0", at=10, step=4)
    assert job.state.barrier is not None
    assert not job.state.cycle.is_complete
    job.do(
        ReachBarrier(
            worker="worker-0", barrier=job.state.barrier.number, files=[SavedFile(name="a", bytes=1, crc32=1)]
        )
    )
    assert job.state.cycle.is_complete
    # It dies before the barrier is passed: another worker writes its files.
    job.end("worker-0", EndReason.KILLED)
    assert not job.state.cycle.is_complete
    assert job.state.barrier.files == []


def _program(toy_job: Any) -> Any:
    """Two workers have the model of a program, whose calls came in the wrong order; a third is on standby."""
    job = toy_job(JobSettings(workers=2, allreduce=True, program="command"), sizes={"unused": 1})
    job.start_nodes()
    data = DatasetAnnouncement(
        name="training", size=100, batch_size=10, epochs=1, minibatches_per_shard=1, shuffle_shards=True
    )
    job.do(OpenDataset(announcement=data))
    assert job.state.steps.is_fresh
    job.do(HoldTrainingState(worker="worker-1", dataset="training", older=["worker-0"]))
    job.do(HoldTrainingState(worker="worker-0", dataset="training", older=[]))
    job.do(ScaleRole(role="worker", target=3))
    job.start_nodes()
    return job


def test_standby_of_finished_program_has_nothing_to_start(toy_job: Any) -> None:
    job = _program(toy_job)
    _advance(job, "worker-0", at=10, step=5)
    assert job.state.steps.is_concluded
    for worker in ("worker-0", "worker-1"):
        job.do(ReleaseTrainingState(worker=worker))
        job.end(worker, EndReason.COMPLETED, 0)
        assert job.state.steps.is_concluded
        assert not job.state.steps.is_fresh
    assert job.state.generation == 1
    assert job.replayed().snapshot() == job.state.snapshot()
    job.end("worker-2", EndReason.COMPLETED, 0)
    assert job.state.outcome == "succeeded"


def test_standby_of_program_that_ended_early_has_nothing_to_start(toy_job: Any) -> None:
    """The program stops by its own decision, in the middle of its data."""
    job = _program(toy_job)
    _advance(job, "worker-0", at=4, step=2)
    job.end("worker-0", EndReason.COMPLETED, 0)
    assert job.state.steps.is_concluded
    job.end("worker-1", EndReason.KILLED)
    assert not job.state.steps.is_fresh
    assert job.state.generation == 1


def test_program_killed_while_saving_is_trained_again(toy_job: Any) -> None:
    """The other worker was not the first: it has saved nothing."""
    job = _program(toy_job)
    _advance(job, "worker-0", at=10, step=5)
    job.do(ReleaseTrainingState(worker="worker-1"))
    job.end("worker-1", EndReason.COMPLETED, 0)
    job.end("worker-0", EndReason.KILLED)
    assert job.state.generation == 2
    assert job.state.steps.is_fresh
    assert job.state.ledger.done("training", 0) == 0


def test_next_oldest_saves_when_the_first_is_killed(toy_job: Any) -> None:
    job = _program(toy_job)
    _advance(job, "worker-0", at=10, step=5)
    job.end("worker-0", EndReason.KILLED)
    assert job.state.leader().name == "worker-1"
    job.do(ReleaseTrainingState(worker="worker-1"))
    job.end("worker-1", EndReason.COMPLETED, 0)
    assert job.state.generation == 1
    assert not job.state.steps.is_fresh
