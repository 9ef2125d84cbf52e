"""Keras's own callbacks in a worker that joins late. `contract/` has what is common to all frameworks."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, CallbackRunner, EndedEpoch, Shard

callbacks = tf.keras.callbacks
BATCH = Batch(
    shard=Shard(lease_id=0, epoch=0, start=0, end=4),
    position=4,
    atomic=False,
    last=True,
    size=4,
    features=tf.reshape(tf.range(12.0), [4, 3]) / 12,
    labels=tf.ones([4, 1]),
)
# Better, and then no more.
LOSSES = [0.9, 0.5, 0.6, 0.6, 0.6]
PAST = [EndedEpoch(epoch=i, logs={"loss": loss, "val_loss": loss}) for i, loss in enumerate(LOSSES)]


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(given: Callable[[], Sequence[Any]], rate: Any = 0.4) -> KerasTrainer:
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=lambda: tf.keras.optimizers.SGD(rate() if callable(rate) else rate, momentum=0.9),
            eval_metrics_fn=lambda: {"accuracy": tf.keras.metrics.BinaryAccuracy()},
            callbacks=lambda: list(given()),
        )
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        return KerasTrainer(definition=definition, model=model)

    return make


def live(trainer: KerasTrainer, then: int) -> tuple[CallbackRunner, dict[str, Any]]:
    """A worker that was there all the time, and its optimizer as a checkpoint before the last end has it."""
    trainer.build(BATCH)
    runner = trainer.callbacks(leader=True, epochs=9)
    runner.fire("on_train_begin", {})
    saved: dict[str, Any] = {}
    for ended in PAST[:then]:
        runner.fire("on_epoch_begin", ended.epoch, {})
        trainer.train(BATCH)
        saved = trainer.optimizer_state()
        runner.fire("on_epoch_end", ended.epoch, dict(ended.logs))
    runner.fire("on_epoch_begin", then, {})
    return runner, saved


def late(trainer: KerasTrainer, saved: dict[str, Any] | None, then: int) -> CallbackRunner:
    trainer.build(BATCH)
    if saved is not None:
        trainer.set_optimizer_state(saved)
    runner = trainer.callbacks(leader=True, epochs=9, resumed=True)
    runner.fire("on_train_begin", {})
    runner.catch_up(PAST[:then], then)
    return runner


def test_schedule_of_the_optimizer_is_left_alone(trainer: Any) -> None:
    def decaying() -> Any:
        return tf.keras.optimizers.schedules.ExponentialDecay(0.4, 1, 0.5)

    one = trainer(lambda: [callbacks.EarlyStopping("val_loss", patience=9)], decaying)
    late(one, None, 3)
    assert one.learning_rate(2) == pytest.approx(0.1)


def test_weights_of_today_are_not_taken_for_those_of_the_past(trainer: Any) -> None:
    stopping = callbacks.EarlyStopping("val_loss", patience=9, restore_best_weights=True)
    late(trainer(lambda: [stopping]), None, 3)
    assert stopping.best_weights is None


def test_history_is_whole(trainer: Any) -> None:
    one = trainer(lambda: [callbacks.EarlyStopping("val_loss", patience=9)])
    late(one, None, 3)
    assert one.model.history.history["loss"] == LOSSES[:3]


def test_checkpoint_of_the_best_is_not_overwritten_by_a_worse(trainer: Any, tmp_path: Path) -> None:
    def saving() -> list[Any]:
        return [
            callbacks.ModelCheckpoint(
                str(tmp_path / "{epoch}.keras"), monitor="val_loss", save_best_only=True
            )
        ]

    runner = late(trainer(saving), None, 5)
    assert list(tmp_path.iterdir()) == []
    runner.fire("on_epoch_end", 5, {"loss": 0.55, "val_loss": 0.55})
    assert list(tmp_path.iterdir()) == []
    runner.fire("on_epoch_begin", 6, {})
    runner.fire("on_epoch_end", 6, {"loss": 0.4, "val_loss": 0.4})
    assert [path.name for path in tmp_path.iterdir()] == ["7.keras"]


def test_log_goes_on_in_its_file(trainer: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    runner, _ = live(trainer(lambda: [callbacks.CSVLogger(str(path))]), 3)
    runner = late(trainer(lambda: [callbacks.CSVLogger(str(path))]), None, 3)
    runner.fire("on_epoch_end", 3, {"loss": 0.6, "val_loss": 0.6})
    runner.fire("on_train_end", {})
    with path.open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1", "2", "3"]


def test_past_is_not_printed(trainer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    talking = callbacks.LearningRateScheduler(lambda epoch, now: now * 0.9, verbose=1)
    late(trainer(lambda: [talking]), None, 3)
    printed = capsys.readouterr().out
    assert printed.count("LearningRateScheduler") == 1
    assert "Epoch 4" in printed
