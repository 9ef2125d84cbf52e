"""Options of PyTorch's callbacks, and files of TensorBoard. `contract/` has what is common to all frameworks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from elasticdl.worker.torch.callbacks import (
    EarlyStopping,
    TensorBoard,
)
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import CallbackRunner


@pytest.fixture
def trainer_with(make_definition: Any) -> Any:
    def make(*callbacks: Any) -> TorchTrainer:
        trainer = TorchTrainer(
            nn.Linear(3, 2),
            make_definition(
                optimizer=lambda p: torch.optim.SGD(p, lr=0.4), callbacks=lambda: list(callbacks)
            ),
        )
        trainer.parameters()
        return trainer

    return make


def run(trainer: TorchTrainer, leader: bool = True) -> CallbackRunner:
    return trainer.callbacks(leader=leader, epochs=3)


class Listener:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def set_model(self, model: Any) -> None:
        self.heard.append(("model", type(model).__name__))

    def set_params(self, params: Any) -> None:
        self.heard.append(params)

    def on_train_begin(self, logs: Any = None) -> None:
        self.heard.append("begin")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.heard.append((epoch, logs))


def test_callback_receives_model_params_and_events(trainer_with: Any) -> None:
    listener = Listener()
    runner = run(trainer_with(listener))
    runner.fire("on_train_begin", {})
    runner.fire("on_train_batch_begin", 0, {})
    runner.fire("on_epoch_end", 1, {"loss": 2.0})
    assert listener.heard == [("model", "Linear"), {"epochs": 3}, "begin", (1, {"loss": 2.0})]
    assert not runner.stop_training
    assert not runner.empty


@pytest.mark.parametrize(
    ("stopping", "values", "stops_after"),
    [
        (EarlyStopping(), [3.0, 2.0, 2.5, 1.0], 2),
        (EarlyStopping(min_delta=0.5), [3.0, 2.8], 1),
        (EarlyStopping("val_thing", mode="max"), [0.5, 0.6, 0.55], 2),
        (EarlyStopping(), [None, None], None),
    ],
)
def test_early_stopping(
    stopping: EarlyStopping, values: list[float | None], stops_after: int | None, trainer_with: Any
) -> None:
    runner = run(trainer_with(stopping))
    stopped = []
    for epoch, value in enumerate(values):
        runner.fire("on_epoch_end", epoch, {} if value is None else {stopping._metric._monitor: value})
        stopped.append(runner.stop_training)
    assert (stopped.index(True) if True in stopped else None) == stops_after


def test_tensorboard_files(trainer_with: Any, tmp_path: Path) -> None:
    from elasticdl.data.formats.tfrecord_frames import frame
    from elasticdl.wire.event_pb2 import Event

    runner = run(trainer_with(TensorBoard(str(tmp_path / "logs"))))
    runner.fire("on_train_begin", {})
    runner.fire("on_epoch_end", 0, {"loss": 2.0, "val_accuracy": 0.5})
    runner.fire("on_train_end", {})
    (file,) = (tmp_path / "logs").iterdir()
    assert ".tfevents." in file.name
    data, events = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + length]))
        assert data.startswith(frame(data[12 : 12 + length]))
        data = data[16 + length :]
    assert events[0].file_version == "brain.Event:2"
    assert [(value.tag, value.simple_value) for value in events[1].summary.value] == [
        ("epoch_loss", 2.0),
        ("epoch_val_accuracy", 0.5),
    ]
