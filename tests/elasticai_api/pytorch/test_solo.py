"""Elastic training without a master: one process, the same steps as a team would make."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from elasticai_api.errors import ElasticError, NonFiniteError
from elasticai_api.pytorch.controller import create_elastic_controller

SIZE = 50


def _data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(SIZE, 4, generator=generator)
    return TensorDataset(features, features.sum(1, keepdim=True))


def _model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)


def _train_one_batch(model: Any, optimizer: Any, features: Any, targets: Any) -> Any:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(features), targets)
    loss.backward()
    optimizer.step()
    return loss


def _train(batch_size: int, *, epochs: int = 2, **options: Any) -> tuple[Any, list[float]]:
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    controller = create_elastic_controller(batch_size=batch_size, num_epochs=epochs)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    train = controller.elastic_run(_train_one_batch)
    losses = {}
    with controller.scope():
        for features, targets in controller.loader(_data(), **options):
            train(model, optimizer, features, targets)
            losses[controller.step] = controller.last_loss
    losses.pop(0, None)
    return model, [loss for loss in losses.values() if loss is not None]


def test_several_batches_make_the_step_that_one_large_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches of 8 a step, the last step of an epoch with what is left: as with batches of 24."""
    model, losses = _train(24)
    monkeypatch.setenv("WORKER_NUM", "3")
    model_of_three, losses_of_three = _train(8)
    assert len(losses) == 2 * 3
    assert losses_of_three == pytest.approx(losses, rel=1e-5)
    for one, other in zip(model.parameters(), model_of_three.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


def test_loader_processes_give_the_same_batches_in_the_same_order() -> None:
    _, losses = _train(10)
    _, with_process = _train(10, num_workers=1)
    assert with_process == losses


def test_a_schedule_and_a_hook_go_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_NUM", "5")
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    controller = create_elastic_controller(batch_size=10, num_epochs=3)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    controller.set_broadcast_scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5))
    clipped: list[int] = []
    controller.before_step(lambda: clipped.append(1))
    train = controller.elastic_run(_train_one_batch)
    with controller.scope():
        for features, targets in controller.loader(_data()):
            train(model, optimizer, features, targets)
    assert controller.step == 0
    assert len(clipped) == 3
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.125)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("repaired", [False, True])
def test_step_with_gradients_that_are_not_finite_is_an_error(number: float, repaired: bool) -> None:
    model = _model()
    before = [parameter.clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    controller = create_elastic_controller(batch_size=10, num_epochs=1)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    if repaired:
        controller.before_step(lambda: model.weight.grad.zero_())

    def spoil(*batch: Any) -> None:
        _train_one_batch(model, optimizer, *batch)
        model.weight.grad[0, 0] = number

    train = controller.elastic_run(spoil)
    steps = []
    refused = pytest.raises(NonFiniteError, match="of weight is")
    with contextlib.nullcontext() if repaired else refused, controller.scope():
        for features, targets in controller.loader(_data()):
            train(features, targets)
            steps.append(controller.step)
    if repaired:
        assert len(steps) == 5
        assert all(parameter.isfinite().all() for parameter in model.parameters())
    else:
        assert not steps
        assert all(map(torch.equal, before, model.parameters()))


def _train_by_epochs(*, trained: bool) -> list[Any]:
    """The bias is trained in the second epoch only. Returns what it was after each batch, one a step."""
    model = _model()
    model.bias.requires_grad_(trained)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    controller = create_elastic_controller(batch_size=25, num_epochs=3)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)

    def train_one_batch(features: Any, targets: Any) -> Any:
        model.bias.requires_grad_(controller.get_current_epoch() == 1)
        return _train_one_batch(model, optimizer, features, targets)

    train = controller.elastic_run(train_one_batch)
    seen = [model.bias.item()]
    with controller.scope():
        for features, targets in controller.loader(_data()):
            train(features, targets)
            seen.append(model.bias.item())
    return seen


def test_parameter_frozen_for_one_epoch_is_trained_afterwards() -> None:
    seen = _train_by_epochs(trained=True)
    assert [before != after for before, after in pairwise(seen)] == [False] * 2 + [True] * 2 + [False] * 2


def test_parameter_frozen_at_start_cannot_be_trained_later() -> None:
    """Its gradients would not be added up."""
    with pytest.raises(
        ElasticError, match=r"bias: frozen when the training began .* in the training function"
    ):
        _train_by_epochs(trained=False)


def test_trained_parameters_are_fixed_across_restarts() -> None:
    """Others are there then that have frozen nothing yet: all add up the same."""
    model = _model()
    controller = create_elastic_controller(batch_size=10, dataset_size=SIZE)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        assert len(controller._begin()._replica.parameters()) == 2
        model.bias.requires_grad_(False)


def test_every_batch_has_to_be_trained() -> None:
    model = _model()
    controller = create_elastic_controller(batch_size=10)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ElasticError, match="was not trained"):
        for _ in controller.loader(_data()):
            pass


def test_missing_settings_are_named() -> None:
    controller = create_elastic_controller(batch_size=10)
    with pytest.raises(ElasticError, match="set_broadcast_model"):
        next(controller.loader(_data()))
    with pytest.raises(ElasticError, match="batch_size"):
        create_elastic_controller(batch_size=0)
    with pytest.raises(ElasticError, match="shuffle"):
        next(controller.loader(_data(), shuffle=True))
