"""Keras callbacks in a training that is not Keras's: all events arrive, files are the leader's."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition, ProgramError
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, CallbackRunner, Shard

callbacks = tf.keras.callbacks
HAS_BOARD = importlib.util.find_spec("tensorboard") is not None
BATCH = Batch(
    shard=Shard(lease_id=0, epoch=0, start=0, end=4),
    position=4,
    atomic=False,
    last=True,
    size=4,
    features=tf.reshape(tf.range(12.0), [4, 3]),
    labels=tf.ones([4, 1]),
)


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(given: Any) -> KerasTrainer:
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=lambda: tf.keras.optimizers.SGD(0.01),
            eval_metrics_fn=lambda: {"accuracy": tf.keras.metrics.BinaryAccuracy()},
            callbacks=given if callable(given) else lambda: given,
        )
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        return KerasTrainer(definition=definition, model=model)

    return make


def epoch(trainer: KerasTrainer, runner: CallbackRunner, number: int, **logs: float) -> None:
    runner.fire("on_epoch_begin", number, {})
    runner.fire("on_train_batch_begin", 0, {})
    loss = trainer.train(BATCH)
    runner.fire("on_train_batch_end", 0, {"loss": loss})
    runner.fire("on_epoch_end", number, {"loss": loss, **logs})


def test_all_events_arrive_with_the_model(trainer: Callable[..., KerasTrainer]) -> None:
    seen: list[tuple[Any, ...]] = []

    class Recorder(callbacks.Callback):  # type: ignore[name-defined]
        def on_train_begin(self, logs: Any = None) -> None:
            seen.append(("train", self.params["epochs"], float(self.model.optimizer.learning_rate)))

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            seen.append(("epoch", epoch))

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(("batch", batch, sorted(logs)))

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(("test batch", batch))

        def on_test_end(self, logs: Any = None) -> None:
            seen.append(("test end",))

        def on_predict_begin(self, logs: Any = None) -> None:
            seen.append(("predict",))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(("epoch end", logs["val_loss"]))

        def on_train_end(self, logs: Any = None) -> None:
            seen.append(("end", self.model.history.history["val_loss"]))

    trained = trainer([Recorder()])
    runner = trained.callbacks(leader=False, epochs=3)
    assert not runner.empty
    runner.fire("on_train_begin", {})
    epoch(trained, runner, 0, val_loss=2.0)
    runner.fire("on_test_batch_end", 7, {})
    runner.fire("on_test_end", {})
    runner.fire("on_predict_begin")
    runner.fire("on_train_end", {})
    assert seen == [
        ("train", 3, pytest.approx(0.01)),
        ("epoch", 0),
        ("batch", 0, ["loss"]),
        ("epoch end", 2.0),
        ("test batch", 7),
        ("test end",),
        ("predict",),
        ("end", [2.0]),
    ]


def test_early_stopping_restores_the_best_weights(trainer: Callable[..., KerasTrainer]) -> None:
    trained = trainer([callbacks.EarlyStopping(monitor="val_loss", patience=1, restore_best_weights=True)])
    runner = trained.callbacks(leader=False, epochs=10)
    runner.fire("on_train_begin", {})
    epoch(trained, runner, 0, val_loss=1.0)
    best = trained.parameters().trainable
    epoch(trained, runner, 1, val_loss=2.0)
    runner.fire("on_train_end", {})
    assert runner.stop_training
    assert all((best[name] == value).all() for name, value in trained.parameters().trainable.items())


def test_files_are_written_by_the_leader_alone(trainer: Callable[..., KerasTrainer], tmp_path: Path) -> None:
    # TensorFlow writes for it only where it is installed; newer versions do not bring it.
    board = [callbacks.TensorBoard(str(tmp_path / "board"), update_freq="batch")] if HAS_BOARD else []

    def given() -> list[Any]:
        return [
            *board,
            callbacks.CSVLogger(str(tmp_path / "log.csv")),
            callbacks.ModelCheckpoint(str(tmp_path / "saved.keras"), monitor="val_loss", save_best_only=True),
        ]

    trained = trainer(given)
    follower = trained.callbacks(leader=False, epochs=1)
    assert follower.empty
    follower.fire("on_train_begin", {})
    epoch(trained, follower, 0, val_loss=1.0)
    follower.fire("on_train_end", {})
    assert list(tmp_path.iterdir()) == []
    leader = trained.callbacks(leader=True, epochs=1)
    leader.fire("on_train_begin", {})
    epoch(trained, leader, 0, val_loss=1.0)
    leader.fire("on_train_end", {})
    assert (tmp_path / "log.csv").read_text().startswith("epoch")
    assert (tmp_path / "saved.keras").is_file()
    assert bool(list((tmp_path / "board").rglob("events.out.tfevents.*"))) == HAS_BOARD


def test_backup_is_left_to_the_job(
    trainer: Callable[..., KerasTrainer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = trainer(lambda: [callbacks.BackupAndRestore(str(tmp_path / "backup"))]).callbacks(
        leader=True, epochs=1
    )
    assert runner.empty
    assert "BackupAndRestore is left out" in caplog.text


def test_callback_that_fails(trainer: Callable[..., KerasTrainer]) -> None:
    class Broken(callbacks.Callback):  # type: ignore[name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise OSError("no such place")

    trained = trainer([Broken()])
    runner = trained.callbacks(leader=False, epochs=1)
    runner.fire("on_train_begin", {})
    with pytest.raises(
        ProgramError, match="The callback Broken failed in on_epoch_end: no such place"
    ) as caught:
        epoch(trained, runner, 0)
    assert "test_callback_events.py" in caught.value.traceback


def test_callbacks_that_are_no_list_are_rejected(trainer: Callable[..., KerasTrainer]) -> None:
    with pytest.raises(UserError, match="returns a TerminateOnNaN, not a list"):
        trainer(lambda: callbacks.TerminateOnNaN()).callbacks(leader=True, epochs=1)


def test_gradients_for_servers_let_callbacks_see_the_time(trainer: Callable[..., KerasTrainer]) -> None:
    trained = trainer([callbacks.TerminateOnNaN()])
    trained.callbacks(leader=False, epochs=1)
    for _ in range(3):
        trained.gradients(BATCH)
    assert int(trained.model.optimizer.iterations) == 3
