"""What a definition's optimizer is not for stays as it is, and so does what is frozen: on parameter servers as in one
worker, in tables as elsewhere.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import LocalModel, Model
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard

IDS = torch.randint(0, 20, (16, 3), generator=torch.Generator().manual_seed(0))
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=16),
    position=16,
    atomic=False,
    last=True,
    size=16,
    features=IDS,
    labels=torch.ones(16, 1),
)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.kept = elasticdl.torch.Embedding(4, initializer="normal")
        # Of two layers with one table the optimizer is given one.
        self.left, self.right = (elasticdl.torch.EmbeddingBag(4, table="both") for _ in range(2))
        self.head = nn.Linear(4, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.kept(ids).sum(1) + self.left(ids) + self.right(ids[:, :1])
        return self.head(self.body(ids.float()) + rows)


def frozen() -> Any:
    network = Network()
    for layer in (network.body, network.kept):
        layer.requires_grad_(False)
    return network


def of_some(model: Any) -> Any:
    some = [*model.left.parameters(), *model.head.parameters()]
    # Decay would change a parameter whose gradient is zero.
    return torch.optim.SGD(some, 0.1, weight_decay=0.1)


CASES: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "without optimizer": (Network, of_some),
    "frozen": (frozen, lambda model: torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1)),
}


@pytest.mark.parametrize("where", ["servers", "one worker"])
@pytest.mark.parametrize("case", CASES)
def test_parameter_outside_of_optimizer_is_unchanged(
    make_definition: Callable[..., ModelDefinition],
    table_servers: tuple[list[Any], list[str]],
    case: str,
    where: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(0)
    network, optimizer = CASES[case]
    definition = make_definition(
        loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(), optimizer=optimizer
    )
    made = network()
    trainer = TorchTrainer(made, definition)
    model: Model = LocalModel(trainer, restore_from="", first_step=0)
    if where == "servers":
        client = ParameterClient(table_servers[1], "token", "worker-0", generation=1, patience_seconds=60)
        model = ServedModel(trainer, client, pull_every=1, restore_from="")
    model.prepare(BATCH)

    def values() -> dict[str, Any]:
        made.eval()
        with torch.no_grad():
            rows = {"kept": made.kept(IDS).numpy(), "both": made.left(IDS).numpy()}
        everything = trainer.parameters()
        return {name: np.array(one) for name, one in (everything.trainable | everything.state | rows).items()}

    before = values()
    for _ in range(3):
        model.train(BATCH, position=16, batches=1)
    model.thaw()
    after = values()
    model.close()
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert same == {"body.weight", "body.bias", "kept"}
    warnings = [record.getMessage() for record in caplog.records if "optimizer" in record.getMessage()]
    assert [line.partition(" is not for ")[2] for line in warnings] == (
        [] if case == "frozen" else ["body.weight, body.bias, kept: nothing changes them."]
    )
