"""A definition's optimizer may be the user's own, in NumPy: one worker alone, servers and PyTorch's do the same."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl
import elasticdl.torch
from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.torch.optimizer import make_optimizer, server_config
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard
from tests.worker.own_optimizers import (
    assert_goes_on_from_a_checkpoint,
    assert_servers_do_the_same,
    losses_alone,
)

STEPS = 12


class Adagrad(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"sum": 0.0}

    def __init__(self, learning_rate: float, epsilon: float = 1e-3) -> None:
        super().__init__(learning_rate)
        self.epsilon = epsilon

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] += gradient**2
        return value - learning_rate * gradient / (np.sqrt(slots["sum"]) + self.epsilon)


def own(parameters: Any) -> Any:
    return Adagrad(0.1, epsilon=1e-10)


def pytorchs(parameters: Any) -> Any:
    return torch.optim.Adagrad(parameters, 0.1)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = elasticdl.torch.Embedding(4, initializer="normal", name="rows")
        self.out = nn.Linear(12, 1)

    def forward(self, ids: Any) -> Any:
        return self.out(self.embedding(ids).flatten(1))


def batches() -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        Batch(
            shard=Shard(lease_id=1, epoch=0, start=0, end=800),
            position=16 * (number + 1),
            atomic=False,
            last=False,
            size=16,
            features=torch.randint(0, 40, (16, 3), generator=generator),
            labels=torch.randn(16, 1, generator=generator),
        )
        for number in range(STEPS)
    ]


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[[Any], TorchTrainer]:
    def make(optimizer: Any) -> TorchTrainer:
        torch.manual_seed(0)
        definition = make_definition(
            loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
            optimizer=optimizer,
            eval_metrics_fn=dict,
        )
        return TorchTrainer(Network(), definition)

    return make


def test_alone_it_does_what_pytorchs_does(trainer: Callable[[Any], TorchTrainer]) -> None:
    both = [losses_alone(trainer(optimizer), batches()) for optimizer in (own, pytorchs)]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-5)


def test_servers_do_the_same(
    trainer: Callable[[Any], TorchTrainer], table_servers: tuple[list[Any], list[str]]
) -> None:
    assert_servers_do_the_same(lambda: trainer(own), batches(), table_servers[1])


def test_custom_optimizer_continues_from_checkpoint(
    trainer: Callable[[Any], TorchTrainer], tmp_path: Path
) -> None:
    assert_goes_on_from_a_checkpoint(lambda: trainer(own), batches(), tmp_path, rtol=0)


def test_custom_optimizer_may_have_a_schedule() -> None:
    def scheduled() -> Any:
        return Adagrad(0.5), lambda made: torch.optim.lr_scheduler.StepLR(made, 1, gamma=0.1)

    model = nn.Linear(1, 1)
    optimizer, schedule = make_optimizer(scheduled, model)
    config = server_config(optimizer, schedule)
    assert (config.name, config.flavor) == (f"{__name__}:Adagrad", "python")
    assert optimizer.param_groups[0]["lr"] == 0.5
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_rate_that_is_no_number() -> None:
    with pytest.raises(UserError, match=r"learning rate of Adagrad .* no number"):
        make_optimizer(lambda: Adagrad("fast"), nn.Linear(1, 1))  # type: ignore[arg-type]
