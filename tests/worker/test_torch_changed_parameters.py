"""A model that changes its own parameters while it computes, as `max_norm` does: servers would never hear of it, so it
is told; one worker alone trains it as PyTorch does.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from elasticdl.jobs.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.torch import TorchTrainer
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


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> TorchTrainer:
    torch.manual_seed(0)
    definition = make_definition(
        loss=nn.functional.mse_loss, optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1)
    )
    return TorchTrainer(Network(), definition)


def test_servers_would_not_hear_of_it(trainer: TorchTrainer) -> None:
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
