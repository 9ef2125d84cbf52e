"""Every framework: callbacks of a worker that joins late have the state of those that ran from the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elasticdl.worker.trainer import Batch, CallbackRunner, EndedEpoch, Trainer
from tests.worker.contract.framework import Framework

Batches = Callable[..., list[Batch]]
# Better, and then no more.
LOSSES = [0.9, 0.5, 0.6, 0.6, 0.6]
PAST = [EndedEpoch(epoch=i, logs={"loss": loss, "val_loss": loss}) for i, loss in enumerate(LOSSES)]
NAMES = ("plateau", "impatient plateau", "multiplying", "multiplying once", "absolute", "both", "none")


def callbacks_of(framework: Framework, name: str) -> list[Any]:
    def multiplying() -> Any:
        return framework.rate_by_epoch(lambda epoch, now: now * 0.9)

    made: dict[str, Callable[[], list[Any]]] = {
        "plateau": lambda: [framework.plateau(2)],
        "impatient plateau": lambda: [framework.plateau(1)],
        "multiplying": lambda: [multiplying()],
        "multiplying once": lambda: [
            framework.rate_by_epoch(lambda epoch, now: now * (0.5 if epoch == 5 else 1.0))
        ],
        "absolute": lambda: [framework.rate_by_epoch(lambda epoch: 1 / (1 + epoch))],
        "both": lambda: [multiplying(), framework.plateau(1)],
        "none": list,
    }
    return made[name]()


@pytest.fixture
def pair(
    trainer: Callable[..., Trainer], batches: Batches, framework: Framework
) -> Callable[[str], tuple[Trainer, Trainer, Batch]]:
    """Two trainers with the same callbacks, and a batch."""

    def make(name: str) -> tuple[Trainer, Trainer, Batch]:
        first, second = (
            trainer(optimizer="momentum", callbacks=lambda: callbacks_of(framework, name)) for _ in range(2)
        )
        return first, second, batches(first)[0]

    return make


def live(trainer: Trainer, batch: Batch) -> tuple[CallbackRunner, dict[str, Any]]:
    """A worker that runs from the start, and its optimizer in a checkpoint before the last end of an epoch."""
    trainer.build(batch)
    runner = trainer.callbacks(leader=True, epochs=9)
    runner.fire("on_train_begin", {})
    saved: dict[str, Any] = {}
    for ended in PAST:
        runner.fire("on_epoch_begin", ended.epoch, {})
        trainer.train(batch)
        saved = trainer.optimizer_state()
        runner.fire("on_epoch_end", ended.epoch, dict(ended.logs))
    runner.fire("on_epoch_begin", len(PAST), {})
    return runner, saved


def late(trainer: Trainer, batch: Batch, saved: dict[str, Any] | None) -> CallbackRunner:
    trainer.build(batch)
    if saved is not None:
        trainer.set_optimizer_state(saved)
    runner = trainer.callbacks(leader=True, epochs=9, resumed=True)
    runner.fire("on_train_begin", {})
    runner.catch_up(PAST, len(PAST))
    return runner


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("restored", [True, False])
def test_late_worker_has_rate_of_first_worker(
    pair: Any, framework: Framework, name: str, restored: bool
) -> None:
    first, second, batch = pair(name)
    runner, saved = live(first, batch)
    later = late(second, batch, saved if restored else None)
    tolerance = framework.RATE_TOLERANCE
    assert second.learning_rate(5) == pytest.approx(first.learning_rate(5), rel=tolerance)
    # And both continue alike.
    for one in (runner, later):
        one.fire("on_epoch_end", 5, {"loss": 0.7, "val_loss": 0.7})
        one.fire("on_epoch_begin", 6, {})
    assert second.learning_rate(6) == pytest.approx(first.learning_rate(6), rel=tolerance)


def test_late_worker_keeps_momentum_of_checkpoint(pair: Any) -> None:
    first, second, batch = pair("plateau")
    _, saved = live(first, batch)
    late(second, batch, saved)
    slots = [name for name, value in saved.items() if np.ndim(value) >= 1]
    # Of two layers with bias.
    assert len(slots) >= 4
    for name in slots:
        np.testing.assert_array_equal(second.optimizer_state()[name], saved[name])


def test_late_worker_counts_past_epochs_without_improvement(
    trainer: Callable[..., Trainer], batches: Batches, framework: Framework
) -> None:
    made = trainer(callbacks=lambda: [framework.early_stopping("val_loss", 4)])
    runner = late(made, batches(made)[0], None)
    assert not runner.stop_training
    runner.fire("on_epoch_end", 5, {"val_loss": 0.6})
    assert runner.stop_training
