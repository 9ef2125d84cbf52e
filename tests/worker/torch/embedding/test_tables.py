"""A PyTorch model whose embeddings have tables, and its trainer: gradients of rows, steps, checkpoints."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.ps.embedding.lookups import Lookups
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard

GENERATOR = torch.Generator().manual_seed(0)
SPARSE = torch.randint(-(2**63), 2**63 - 1, (20,), generator=GENERATOR)
PLACES = torch.randint(0, 20, (16, 3), generator=GENERATOR)
LABELS = torch.randn(16, 1, generator=GENERATOR)


class Network(nn.Module):
    def __init__(self, embedding: Any, bag: Any) -> None:
        super().__init__()
        self.embedding, self.bag = embedding, bag
        self.out = nn.Linear(16, 1)

    def forward(self, ids: Any) -> Any:
        parts = [self.embedding(ids).flatten(1), self.bag(ids)]
        return self.out(torch.cat(parts, dim=1))


def batch_of(ids: Any) -> Batch:
    shard = Shard(lease_id=1, epoch=0, start=0, end=16)
    return Batch(shard=shard, position=16, atomic=False, last=True, size=16, features=ids, labels=LABELS)


BATCH = batch_of(SPARSE[PLACES])


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    def make(*layers: Any, rate: float = 0.1) -> TorchTrainer:
        torch.manual_seed(0)
        layers = layers or (
            elasticdl.torch.Embedding(4, initializer="normal"),
            elasticdl.torch.EmbeddingBag(4, mode="sum", table="bags"),
        )
        definition = make_definition(
            loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
            optimizer=lambda parameters: torch.optim.Adagrad(parameters, rate),
            eval_metrics_fn=dict,
        )
        return TorchTrainer(Network(*layers), definition)

    return make


def test_gradients_of_rows_are_those_that_pytorch_has(trainer: Callable[..., TorchTrainer]) -> None:
    made = trainer()
    made.build(BATCH)
    source = LocalTables(made.tables.specs)
    made.tables.join(Lookups(source))
    first = torch.from_numpy(source.pull_rows({"embedding": SPARSE.numpy()})["embedding"])
    second = torch.from_numpy(source.pull_rows({"bags": SPARSE.numpy()})["bags"])
    plain = trainer(
        nn.Embedding.from_pretrained(first, freeze=False),
        nn.EmbeddingBag.from_pretrained(second, freeze=False, mode="sum"),
    )
    loss, gradients = made.gradients(BATCH)
    rows = made.row_gradients()
    expected_loss, expected = plain.gradients(batch_of(PLACES))
    assert loss == pytest.approx(expected_loss)
    np.testing.assert_allclose(gradients["out.weight"], expected["out.weight"], rtol=1e-5)
    place = {int(number): index for index, number in enumerate(SPARSE)}
    for table, name in (("embedding", "embedding.weight"), ("bags", "bag.weight")):
        ids = [place[int(number)] for number in rows[table].ids]
        assert sorted(ids) == PLACES.unique().tolist()
        np.testing.assert_allclose(rows[table].values, expected[name][ids], rtol=1e-5, atol=1e-7)
    assert made.row_gradients() == {}


def test_a_batch_that_is_computed_again_has_its_gradients_once(trainer: Callable[..., TorchTrainer]) -> None:
    made = trainer()
    made.build(BATCH)
    made.tables.join(Lookups(LocalTables(made.tables.specs)))
    made.gradients(BATCH)
    once = made.row_gradients()["bags"].values
    made.gradients(BATCH)
    made.gradients(BATCH)
    np.testing.assert_array_equal(made.row_gradients()["bags"].values, once)
