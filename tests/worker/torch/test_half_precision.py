"""PyTorch models that compute in half precision train, by themselves and on parameter servers, with tables in them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard

GENERATOR = torch.Generator().manual_seed(0)
IDS = torch.randint(0, 30, (32, 3), generator=GENERATOR)
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=32),
    position=32,
    atomic=False,
    last=True,
    size=32,
    features=IDS,
    labels=(IDS[:, :1] % 2).float(),
)


class Halved(nn.Module):
    """All of it in half precision; rows of tables are float32, and made what is wanted."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.embedding = elasticdl.torch.Embedding(4, initializer="normal")
        self.out = nn.Linear(12, 1)
        self.to(kind)

    def forward(self, ids: Any) -> Any:
        return self.out(self.embedding(ids).to(self.out.weight.dtype).flatten(1)).float()


class Cast(Halved):
    """Parameters of float32, computed with in half precision."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__(torch.float32)
        self.kind = kind

    def forward(self, ids: Any) -> Any:
        with torch.autocast("cpu", self.kind):
            return self.out(self.embedding(ids).flatten(1)).float()


def clip(optimizer: Any, parameters: list[Any]) -> None:
    def hook(*_: Any) -> None:
        nn.utils.clip_grad_norm_(parameters, 100.0)

    optimizer.register_step_pre_hook(hook)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("network", [Halved, Cast])
@pytest.mark.parametrize("where", ["servers", "one worker"])
def test_half_precision_model_learns(
    make_definition: Callable[..., ModelDefinition],
    table_servers: tuple[list[Any], list[str]],
    network: Callable[..., Any],
    kind: torch.dtype,
    where: str,
) -> None:
    def optimizer(parameters: Any) -> Any:
        made = torch.optim.SGD(parameters, 2.0)
        clip(made, parameters)
        return made

    torch.manual_seed(0)
    definition = make_definition(
        loss=lambda labels, predictions: nn.functional.binary_cross_entropy_with_logits(predictions, labels),
        optimizer=optimizer,
        eval_metrics_fn=dict,
    )
    trainer = TorchTrainer(network(kind), definition)
    model: Any = LocalModel(trainer, restore_from="", first_step=0)
    if where == "servers":
        client = ParameterClient(
            table_servers[1], "token", "worker-0", generation=1, patience_seconds=60, tolerant=False
        )
        model = ServedModel(trainer, client, pull_every=1, restore_from="")
    model.prepare(BATCH)
    losses = [model.train(BATCH, position=32, batches=1) for _ in range(40)]
    model.settle()
    assert losses[-1] < 0.8 * losses[0]
    assert trainer.tables.layers[0][1].handle.numel() == 0
    model.close()
