"""A model that changes its own parameters while it computes, as `max_norm` does: servers would never hear of it, so it
is an error, whichever way it does so; one worker alone trains it as PyTorch does.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard

BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=4),
    position=4,
    atomic=False,
    last=True,
    size=4,
    features=torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4]]),
    labels=torch.ones(4, 1),
)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(5, 4, max_norm=0.5)
        self.out = nn.Linear(8, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.rows(ids).flatten(1))


class Clamping(nn.Module):
    """By a way that PyTorch does not count."""

    limit = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.out.weight.data.clamp_(-self.limit, self.limit)
        return self.out(ids.float())


class Floats(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids.float()


class ByNumPy(Clamping):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        np.abs(self.out.bias.detach().numpy(), out=self.out.bias.detach().numpy())
        return self.out(ids.float())


class Replacing(Clamping):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.out.weight.data = self.out.weight.data.sign()
        return self.out(ids.float())


def optimizer(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, 0.1)


@pytest.fixture
def make(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    def make(network: Callable[[], Any], optimizer: Callable[..., Any] = optimizer) -> TorchTrainer:
        torch.manual_seed(0)
        return TorchTrainer(network(), make_definition(loss=nn.functional.mse_loss, optimizer=optimizer))

    return make


@pytest.fixture
def trainer(make: Callable[..., TorchTrainer]) -> TorchTrainer:
    return make(Network)


def test_model_that_changes_its_parameters_is_rejected_with_servers(trainer: TorchTrainer) -> None:
    with pytest.raises(UserError, match=r"changes parameters while it computes: rows.weight") as caught:
        trainer.gradients(BATCH)
    assert "max_norm" in caught.value.hint


def test_one_worker_alone(trainer: TorchTrainer) -> None:
    torch.manual_seed(0)
    plain = Network()
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(BATCH.labels, plain(BATCH.features)).backward()
        optimizer.step()
        trainer.train(BATCH)
    found: Any = trainer.parameters().trainable
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(torch.from_numpy(found[name]), parameter.detach())


@pytest.mark.parametrize(
    ("network", "name"), [(Clamping, "out.weight"), (ByNumPy, "out.bias"), (Replacing, "out.weight")]
)
def test_ways_that_pytorch_does_not_count(
    make: Callable[..., TorchTrainer], network: type[Clamping], name: str
) -> None:
    with pytest.raises(UserError, match=rf"changes parameters while it computes: {name}\."):
        make(network).gradients(BATCH)


def test_from_some_time_on(make: Callable[..., TorchTrainer]) -> None:
    """A limit that parameters reach after a while."""
    trainer = make(Clamping)
    trainer._model.limit = 10.0
    for _ in range(5):
        trainer.gradients(BATCH)
    trainer._model.limit = 0.1
    with pytest.raises(UserError, match="changes parameters while it computes"):  # noqa: PT012
        for number in range(3):
            trainer.gradients(BATCH)
            # Its numbers are those of the servers again.
            nn.init.constant_(trainer._model.out.weight, 0.5 + number)


def test_a_hook_that_does(make: Callable[..., TorchTrainer]) -> None:
    def clamping(parameters: Any) -> Any:
        made = optimizer(parameters)

        def clamp(*_: Any) -> None:
            for group in made.param_groups:
                group["params"][0].data.clamp_(-0.1, 0.1)

        made.register_step_pre_hook(clamp)
        return made

    trainer = make(lambda: nn.Sequential(Floats(), nn.Linear(2, 1)), clamping)
    with pytest.raises(UserError, match="hook of the optimizer SGD changes parameters"):
        trainer.gradients(BATCH)
