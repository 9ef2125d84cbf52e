"""PyTorch's schedules and parameter groups with callbacks of a worker that joins late, and TensorBoard files.

`contract/` has what is common to all frameworks.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.torch.callbacks import (
    LearningRateScheduler,
    ReduceLROnPlateau,
    TensorBoard,
)
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, CallbackRunner, EndedEpoch, Shard

BATCH = Batch(
    shard=Shard(lease_id=0, epoch=0, start=0, end=4),
    position=4,
    atomic=False,
    last=True,
    size=4,
    features=torch.arange(12.0).reshape(4, 3),
    labels=torch.ones(4, 1),
)
# Better, and then no more.
LOSSES = [0.9, 0.5, 0.6, 0.6, 0.6]
PAST = [EndedEpoch(epoch=i, logs={"loss": loss}) for i, loss in enumerate(LOSSES)]


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    def make(callbacks: Callable[[], Sequence[Any]], schedule: Any = None) -> TorchTrainer:
        def optimizer(parameters: Any) -> Any:
            made = torch.optim.SGD(parameters, lr=0.4, momentum=0.9)
            return made if schedule is None else (made, schedule(made))

        return TorchTrainer(
            nn.Linear(3, 1),
            make_definition(
                loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
                optimizer=optimizer,
                callbacks=lambda: list(callbacks()),
            ),
        )

    return make


def live(
    trainer: TorchTrainer, epochs: Sequence[EndedEpoch], then: int
) -> tuple[CallbackRunner, dict[str, Any]]:
    """A worker that was there all the time, and its optimizer as a checkpoint before the last end has it."""
    trainer.build(BATCH)
    runner = trainer.callbacks(leader=True, epochs=9)
    runner.fire("on_train_begin", {})
    saved: dict[str, Any] = {}
    for ended in epochs:
        runner.fire("on_epoch_begin", ended.epoch, {})
        trainer.train(BATCH)
        saved = trainer.optimizer_state()
        runner.fire("on_epoch_end", ended.epoch, dict(ended.logs))
    runner.fire("on_epoch_begin", then, {})
    return runner, saved


def late(trainer: TorchTrainer, saved: dict[str, Any] | None, then: int) -> CallbackRunner:
    trainer.build(BATCH)
    if saved is not None:
        trainer.set_optimizer_state(saved)
    runner = trainer.callbacks(leader=True, epochs=9, resumed=True)
    runner.fire("on_train_begin", {})
    runner.catch_up(PAST[:then], then)
    return runner


def plateau() -> list[Any]:
    return [ReduceLROnPlateau("loss", patience=2, factor=0.5)]


def rate(trainer: TorchTrainer) -> float:
    return float(trainer.optimizer_state()["group/0/lr"])


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        lambda optimizer: torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.8),
    ],
)
def test_with_a_schedule_by_batches(trainer: Any, schedule: Any) -> None:
    first, second = trainer(plateau, schedule), trainer(plateau, schedule)
    _, saved = live(first, PAST, 5)
    late(second, saved, 5)
    assert rate(second) == pytest.approx(rate(first), rel=1e-9)
    assert rate(second) < 0.4 * 0.9**5
    for one in (first, second):
        one.train(BATCH)
    assert rate(second) == pytest.approx(rate(first), rel=1e-9)


def test_tensorboard_of_late_worker_has_new_epochs_only(trainer: Any, tmp_path: Path) -> None:
    runner = late(trainer(lambda: [TensorBoard(str(tmp_path))]), None, 3)
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    runner.fire("on_epoch_end", 3, {"loss": 0.6})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > written


class AddsGroup:
    """Part of the model is trained from an epoch on, or (-1) from the beginning."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def set_model(self, model: Any) -> None:
        self.bias = model.bias

    def set_optimizer(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def on_train_begin(self, logs: Any = None) -> None:
        self.on_epoch_begin(-1)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.epoch:
            self.optimizer.add_param_group({"params": [self.bias], "lr": 0.1})


@pytest.fixture
def growing(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    """A trainer whose callbacks add a group."""

    def make(epoch: int, *, rate: float = 0.9, schedule: Any = None) -> TorchTrainer:
        def optimizer(model: Any) -> Any:
            made = torch.optim.SGD([model.weight], lr=0.4, momentum=0.9)
            return made if schedule is None else (made, schedule(made))

        torch.manual_seed(0)
        return TorchTrainer(
            nn.Linear(3, 1),
            make_definition(
                loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
                optimizer=optimizer,
                callbacks=lambda: [
                    LearningRateScheduler(lambda epoch, present: present * rate),
                    AddsGroup(epoch),
                ],
            ),
        )

    return make


def rates_of(trainer: TorchTrainer) -> list[float]:
    return [group["lr"] for group in trainer._learner().optimizer.param_groups]


@pytest.mark.parametrize("epoch", [-1, 0, 2, 5])
def test_a_group_of_parameters_that_was_added(growing: Callable[..., TorchTrainer], epoch: int) -> None:
    first, second = growing(epoch), growing(epoch)
    live(first, PAST, 5)
    late(second, None, 5)
    assert len(rates_of(first)) == 2
    assert rates_of(second) == pytest.approx(rates_of(first))


@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("epoch", [-1, 0, 2, 5])
def test_a_training_with_an_added_group_goes_on(
    growing: Callable[..., TorchTrainer], epoch: int, scheduled: bool
) -> None:
    options = {"rate": 1.0, "schedule": Halves} if scheduled else {}
    first, second = growing(epoch, **options), growing(epoch, **options)
    _, saved = live(first, PAST, 5)
    second.set_parameters(first.parameters())
    late(second, saved, 5)
    # A checkpoint before the next step has it all.
    assert second.optimizer_state().keys() >= saved.keys()
    for _ in range(3):
        assert second.train(BATCH) == pytest.approx(first.train(BATCH), rel=1e-6)
    state = first.optimizer_state()
    assert "slot/bias/momentum_buffer" in state
    assert second.optimizer_state().keys() == state.keys()
    for name, array in second.optimizer_state().items():
        np.testing.assert_allclose(array, state[name], rtol=1e-6, err_msg=name)


def test_group_that_is_not_added_again_is_an_error(growing: Callable[..., TorchTrainer]) -> None:
    first, second = growing(0), growing(9)
    _, saved = live(first, PAST, 5)
    late(second, saved, 5)
    with pytest.raises(UserError, match="The saved optimizer has bias, which the one of the model") as caught:
        second.train(BATCH)
    assert "on_epoch_begin" in caught.value.hint


def test_groups_are_the_same_objects_after_a_restore(growing: Callable[..., TorchTrainer]) -> None:
    """A callback may have kept one, to change its rate."""
    first, second = growing(0), growing(0)
    _, saved = live(first, PAST, 5)
    late(second, saved, 5)
    groups = list(second._learner().optimizer.param_groups)
    second.train(BATCH)
    assert all(a is b for a, b in zip(groups, second._learner().optimizer.param_groups, strict=True))


class Halves(torch.optim.lr_scheduler.LRScheduler):
    """Has no formula, and is for whatever groups there are."""

    def get_lr(self) -> list[float | torch.Tensor]:
        return [group["lr"] * (0.5 if self.last_epoch else 1.0) for group in self.optimizer.param_groups]


@pytest.mark.parametrize(
    "schedule",
    [lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), Halves],
    ids=["a formula", "stepped"],
)
def test_a_worker_that_has_added_a_group_goes_back(
    growing: Callable[..., TorchTrainer], schedule: Any
) -> None:
    trainer = growing(1, rate=1.0, schedule=schedule)
    _, saved = live(trainer, PAST[:1], 1)
    before = rates_of(trainer)
    assert len(before) == 2
    trainer._learner().rates.resume(int(saved["schedule/steps"]))
    assert rates_of(trainer) == before
    assert trainer._learner().rates.scheduled() == pytest.approx((0.2,))
