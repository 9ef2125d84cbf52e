"""Every framework: callbacks receive Keras's events, end the training, set the rate; one worker writes files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticdl.worker.definition import ProgramError
from elasticdl.worker.trainer import Batch, CallbackRunner, EndedEpoch, Trainer
from tests.worker.contract.framework import Framework

Batches = Callable[..., list[Batch]]


@pytest.fixture
def run(
    trainer: Callable[..., Trainer], batches: Batches
) -> Callable[..., tuple[Trainer, Batch, CallbackRunner]]:
    """A trainer with these callbacks, a batch, and what calls them."""

    def make(
        *callbacks: Any, leader: bool = False, resumed: bool = False
    ) -> tuple[Trainer, Batch, CallbackRunner]:
        made = trainer(callbacks=lambda: list(callbacks))
        batch, *_ = batches(made)
        made.build(batch)
        return made, batch, made.callbacks(leader=leader, epochs=10, resumed=resumed)

    return make


def epoch(trainer: Trainer, batch: Batch, runner: CallbackRunner, number: int, **logs: float) -> None:
    runner.fire("on_epoch_begin", number, {})
    runner.fire("on_train_batch_begin", 0, {})
    loss = trainer.train(batch)
    runner.fire("on_train_batch_end", 0, {"loss": loss})
    runner.fire("on_epoch_end", number, {"loss": loss, **logs})


def recorder(
    framework: Framework, events: list[str], *, writes_files: bool = False, stop_after: int = 9
) -> Any:
    class Recorder(framework.Callback):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.writes_files = writes_files

        def on_train_begin(self, logs: Any = None) -> None:
            events.append("train")

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            events.append(f"epoch {epoch}")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            events.append(f"end of {epoch}, loss {logs['loss']}")
            self.model.stop_training = epoch >= stop_after

    return Recorder()


def test_callbacks_receive_events_and_end_the_training(run: Any, framework: Framework) -> None:
    events: list[str] = []
    made, _, runner = run(recorder(framework, events, stop_after=1), leader=True)
    assert not runner.empty
    runner.fire("on_train_begin", {})
    runner.fire("on_train_batch_begin", 0, {})
    runner.fire("on_epoch_begin", 0, {})
    runner.fire("on_epoch_end", 0, {"loss": 1.0})
    stops = [runner.stop_training]
    runner.fire("on_epoch_begin", 1, {})
    runner.fire("on_epoch_end", 1, {"loss": 2.0})
    stops.append(runner.stop_training)
    # Callbacks of another training begin again.
    stops.append(made.callbacks(leader=True, epochs=3).stop_training)
    assert stops == [False, True, False]
    assert events == ["train", "epoch 0", "end of 0, loss 1.0", "epoch 1", "end of 1, loss 2.0"]


def test_late_worker_replays_past_events_to_callbacks(run: Any, framework: Framework) -> None:
    events: list[str] = []
    _, _, runner = run(recorder(framework, events), leader=True, resumed=True)
    runner.fire("on_train_begin", {})
    runner.catch_up([EndedEpoch(epoch=0, logs={"loss": 1.0})], 1)
    assert events == ["train", "epoch 0", "end of 0, loss 1.0", "epoch 1"]


def test_late_worker_replays_no_past_events_to_callback_that_writes_files(
    run: Any, framework: Framework
) -> None:
    written: list[str] = []
    kept: list[str] = []
    callbacks = [recorder(framework, written, writes_files=True), recorder(framework, kept)]
    past = [EndedEpoch(epoch=number, logs={"loss": loss}) for number, loss in enumerate((0.9, 0.5))]
    _, _, runner = run(*callbacks, leader=True, resumed=True)
    runner.fire("on_train_begin", {})
    runner.catch_up(past, 2)
    assert written == ["train", "epoch 2"]
    assert kept == ["train", "epoch 0", "end of 0, loss 0.9", "epoch 1", "end of 1, loss 0.5", "epoch 2"]
    written.clear()
    kept.clear()
    runner.fire("on_epoch_end", 2, {"loss": 0.6})
    assert written == kept == ["end of 2, loss 0.6"]


def test_callback_that_writes_files_runs_on_leader_only(run: Any, framework: Framework) -> None:
    written: list[str] = []
    kept: list[str] = []
    callbacks = [recorder(framework, written, writes_files=True), recorder(framework, kept)]
    made, _, follower = run(*callbacks)
    follower.fire("on_train_begin", {})
    follower.fire("on_epoch_end", 2, {"loss": 0.6})
    assert written == []
    assert kept == ["train", "end of 2, loss 0.6"]
    made.callbacks(leader=True, epochs=3).fire("on_train_begin", {})
    assert written == ["train"]


def test_definition_without_callbacks_has_empty_runner(
    run: Any, trainer: Callable[..., Trainer], batches: Batches
) -> None:
    _, _, runner = run()
    assert runner.empty
    made = trainer()
    made.build(batches(made)[0])
    runner = made.callbacks(leader=True, epochs=1)
    assert runner.empty
    runner.fire("on_train_begin", {})
    assert not runner.stop_training


@pytest.mark.parametrize(
    ("monitor", "epochs", "values", "stops"),
    [
        ("val_loss", 1, [3.0, 2.0, 2.5, 1.0], 2),
        ("val_loss", 2, [1.0, 0.5, 0.6, 0.7], 3),
        ("val_loss", 2, [3.0, 2.0, 2.5, 2.2, 1.0], 3),
        ("val_loss", 2, [3.0, 2.0, 2.5, 1.0, 0.5], None),
        ("val_accuracy", 1, [0.5, 0.6, 0.55], 2),
        ("val_accuracy", 2, [0.5, 0.6, 0.5, 0.5], 3),
        ("val_accuracy", 2, [0.5, 0.6, 0.7, 0.8], None),
        ("val_my_auc", 2, [0.5, 0.6, 0.7, 0.8], None),
        ("val_error", 2, [0.5, 0.6, 0.7, 0.8], 2),
    ],
)
def test_early_stopping_stops_after_epochs_without_improvement(
    run: Any, framework: Framework, monitor: str, epochs: int, values: list[float], stops: int | None
) -> None:
    made, batch, runner = run(framework.early_stopping(monitor, epochs))
    runner.fire("on_train_begin", {})
    stopped = None
    for number, value in enumerate(values):
        epoch(made, batch, runner, number, **{monitor: value})
        if runner.stop_training:
            stopped = number
            break
    assert stopped == stops


def test_rate_by_epoch_is_set_at_begin_of_epoch(run: Any, framework: Framework) -> None:
    made, batch, runner = run(framework.rate_by_epoch(lambda epoch, rate: rate * 0.5))
    runner.fire("on_train_begin", {})
    rates = [made.learning_rate(100)]
    for number in range(3):
        epoch(made, batch, runner, number)
        rates.append(made.learning_rate(100))
    assert rates == pytest.approx([0.05, 0.025, 0.0125, 0.00625])
    made, _, runner = run(framework.rate_by_epoch(lambda epoch: 1 / (epoch + 1)))
    runner.fire("on_train_begin", {})
    assert made.learning_rate(0) == pytest.approx(0.05)
    runner.fire("on_epoch_begin", 3, {})
    assert made.learning_rate(100) == 0.25


@pytest.mark.parametrize(
    ("options", "values", "expected"),
    [
        ({"patience": 1, "factor": 0.1}, [1.0, 1.0], [0.05, 0.005]),
        (
            {"patience": 2, "factor": 0.5, "least": 0.02},
            [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5],
            [0.05, 0.05, 0.025, 0.025, 0.025, 0.02, 0.02, 0.02],
        ),
    ],
    ids=["one epoch", "two epochs"],
)
def test_rate_is_reduced_on_plateau(
    run: Any, framework: Framework, options: dict[str, Any], values: list[float], expected: list[float]
) -> None:
    made, batch, runner = run(framework.plateau(**options))
    runner.fire("on_train_begin", {})
    rates = []
    for number, value in enumerate(values):
        epoch(made, batch, runner, number, val_loss=value)
        rates.append(made.learning_rate(0))
    assert rates == pytest.approx(expected)


def test_error_of_callback_is_raised(run: Any, framework: Framework) -> None:
    class Broken(framework.Callback):  # type: ignore[name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise OSError("no such place")

    made, batch, runner = run(Broken())
    runner.fire("on_train_begin", {})
    with pytest.raises((OSError, ProgramError), match="no such place"):
        epoch(made, batch, runner, 0)
