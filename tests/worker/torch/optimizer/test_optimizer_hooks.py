"""Hooks of an optimizer, such as those that clip gradients, do the same wherever the step is made."""

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.errors import UserError
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard

ROWS = 8
GENERATOR = torch.Generator().manual_seed(0)
BATCHES = [
    Batch(
        shard=Shard(lease_id=1, epoch=0, start=0, end=800),
        position=16 * (number + 1),
        atomic=False,
        last=False,
        size=16,
        features=torch.randint(0, ROWS, (16, 3), generator=GENERATOR),
        labels=10 * torch.randn(16, 1, generator=GENERATOR),
    )
    for number in range(4)
]
START = {"kind": "normal", "stddev": 0.5}


class Network(nn.Module):
    """Two layers of one table, one of which is used twice, or ordinary embeddings in their place."""

    def __init__(self, embedding: Any, again: Any) -> None:
        super().__init__()
        self.embedding, self.again = embedding, again
        self.out = nn.Linear(12, 1)
        nn.init.constant_(self.out.weight, 0.1)
        nn.init.zeros_(self.out.bias)

    def forward(self, ids: Any) -> Any:
        both = self.embedding(ids) + self.again(ids.flip(0)) + self.embedding(ids.flip(1))
        return self.out(both.flatten(1))


def with_tables() -> Network:
    layers = [elasticdl.torch.Embedding(4, table="rows", initializer=START) for _ in range(2)]
    return Network(*layers)


def by_norm(optimizer: Any, parameters: list[Any]) -> None:
    def clip(*_: Any) -> None:
        nn.utils.clip_grad_norm_(parameters, 0.5)

    optimizer.register_step_pre_hook(clip)


def by_value(optimizer: Any, parameters: list[Any]) -> None:
    optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_(parameters, 0.01))


def of_a_tensor(optimizer: Any, parameters: list[Any]) -> None:
    parameters[-1].register_hook(lambda gradient: gradient / 7)


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    def make(hook: Any, model: Any = None) -> TorchTrainer:
        def optimizer(parameters: Any) -> Any:
            made = torch.optim.SGD(parameters, 0.1, momentum=0.5)
            hook(made, parameters)
            return made

        definition = make_definition(
            loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
            optimizer=optimizer,
            eval_metrics_fn=dict,
        )
        return TorchTrainer(model or with_tables(), definition)

    return make


@pytest.fixture
def serve(table_servers: tuple[list[Any], list[str]]) -> Iterator[Callable[..., ServedModel]]:
    made: list[ServedModel] = []

    def make(trainer: TorchTrainer) -> ServedModel:
        client = ParameterClient(
            table_servers[1], "token", "worker-0", generation=1, patience_seconds=60, tolerant=False
        )
        made.append(ServedModel(trainer, client, pull_every=1, restore_from=""))
        return made[-1]

    yield make
    for model in made:
        model.close()


def train(model: Any) -> list[float]:
    losses = []
    for number, batch in enumerate(BATCHES):
        model.prepare(batch)
        losses.append(model.train(batch, position=batch.position, batches=number + 1))
    model.settle()
    return losses


def ordinary(hook: Any) -> list[float]:
    """What PyTorch does with the same model and an ordinary embedding."""
    tables = elasticdl.torch.Embedding(4, table="rows", initializer=START)
    tables.join("rows", None)
    start = tables.eval()(torch.arange(ROWS))
    embedding = nn.Embedding.from_pretrained(start.clone(), freeze=False)
    model = Network(embedding, embedding)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.5)
    hook(optimizer, parameters)
    losses = []
    for batch in BATCHES:
        optimizer.zero_grad()
        loss = ((batch.labels - model(batch.features)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("hook", [by_norm, by_value, of_a_tensor])
@pytest.mark.parametrize("where", ["servers", "one worker"])
def test_hooks_change_gradients_of_parameters_and_of_rows(
    trainer: Callable[..., TorchTrainer], serve: Callable[..., ServedModel], hook: Any, where: str
) -> None:
    made = trainer(hook)
    model = serve(made) if where == "servers" else LocalModel(made, restore_from="", first_step=0)
    expected = ordinary(hook)
    unclipped = ordinary(lambda *_: None)
    # All rows are in every batch, or momentum would go on with those that are in none.
    assert all(len(batch.features.unique()) == ROWS for batch in BATCHES)
    np.testing.assert_allclose(train(model), expected, rtol=1e-4)
    assert not np.allclose(expected, unclipped, rtol=1e-2)
    # Handles are what they were.
    assert [layer.handle.numel() for _, layer in made.tables.layers] == [0, 0]
    assert all(layer.handle.grad is None for _, layer in made.tables.layers)


def test_steps_that_workers_make_together_run_hooks(trainer: Callable[..., TorchTrainer]) -> None:
    made = trainer(by_norm, nn.Sequential(nn.Linear(3, 1)))
    batch = BATCHES[0]
    features = Batch(**{**vars(batch), "features": batch.features.float()})
    made.accumulate(features)
    made.apply()
    norm = sum(float(parameter.grad.norm() ** 2) for parameter in made.shared_parameters()) ** 0.5
    assert norm == pytest.approx(0.5, rel=1e-4)


def behind(optimizer: Any, parameters: list[Any]) -> None:
    optimizer.register_step_post_hook(lambda *_: None)


def replaced(optimizer: Any, parameters: list[Any]) -> None:
    optimizer.step = types.MethodType(lambda self, closure=None: None, optimizer)


def replaced_and_scheduled(optimizer: Any, parameters: list[Any]) -> None:
    replaced(optimizer, parameters)
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def changing_values(optimizer: Any, parameters: list[Any]) -> None:
    @torch.no_grad()  # type: ignore[untyped-decorator]
    def decay(*_: Any) -> None:
        parameters[-1].mul_(0.9)

    optimizer.register_step_pre_hook(decay)


def giving_arguments(optimizer: Any, parameters: list[Any]) -> None:
    optimizer.register_step_pre_hook(lambda _, arguments, keywords: (arguments, keywords))


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (behind, "The optimizer SGD has a hook behind its step"),
        (replaced, "The step of the optimizer SGD is replaced"),
        (replaced_and_scheduled, "The step of the optimizer SGD is replaced"),
        (changing_values, "A hook of the optimizer SGD changes parameters"),
        (giving_arguments, "A hook of the optimizer SGD gives its step other arguments"),
    ],
)
def test_hook_that_servers_cannot_run_is_an_error(
    trainer: Callable[..., TorchTrainer], serve: Callable[..., ServedModel], hook: Any, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        train(serve(trainer(hook)))


def test_a_schedule_is_no_other_step(
    trainer: Callable[..., TorchTrainer], serve: Callable[..., ServedModel]
) -> None:
    def scheduled(optimizer: Any, parameters: list[Any]) -> None:
        torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    assert len(train(serve(trainer(scheduled)))) == len(BATCHES)
