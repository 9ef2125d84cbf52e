"""A PyTorch model whose embeddings have tables, in the hands of its trainer: gradients of rows, steps, checkpoints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, SavedFile, write_manifest
from elasticdl.ps.embedding.lookups import Lookups
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import LocalModel, restore, save
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


def test_tables_are_no_parameters(trainer: Callable[..., TorchTrainer]) -> None:
    made = trainer()
    made.build(BATCH)
    assert sorted(made.parameters().trainable) == ["out.bias", "out.weight"]
    assert [(spec.name, spec.width) for spec in made.tables.specs] == [("embedding", 4), ("bags", 4)]


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


def test_evaluation_makes_no_rows(trainer: Callable[..., TorchTrainer]) -> None:
    made = trainer()
    made.build(BATCH)
    source = LocalTables(made.tables.specs)
    made.tables.join(Lookups(source))
    made.evaluate(BATCH)
    made.predict(BATCH)
    assert len(source) == 0


def test_one_worker_alone_trains_its_rows_and_goes_on_from_a_checkpoint(
    trainer: Callable[..., TorchTrainer], tmp_path: Path
) -> None:
    """The same losses, to the bit, whether the second half of the steps is done by the same worker or by another."""
    half = LocalModel(trainer(), restore_from="", first_step=0)
    whole = LocalModel(trainer(), restore_from="", first_step=0)
    losses = []
    for model, steps in ((half, 5), (whole, 10)):
        model.prepare(BATCH)
        losses = [model.train(BATCH, position=16, batches=1) for _ in range(steps)]
    _finish(tmp_path / "version-5", *half.save(tmp_path / "version-5"))
    second = LocalModel(trainer(), restore_from=str(tmp_path / "version-5"), first_step=5)
    second.prepare(BATCH)
    assert [second.train(BATCH, position=16, batches=1) for _ in range(5)] == losses[5:]


def test_evaluation_restores_rows_of_checkpoint(trainer: Callable[..., TorchTrainer], tmp_path: Path) -> None:
    trained = LocalModel(made := trainer(), restore_from="", first_step=0)
    trained.prepare(BATCH)
    trained.train(BATCH, position=16, batches=1)
    _finish(tmp_path / "version-1", save(made, tmp_path / "version-1", with_optimizer=False))
    other = trainer()
    other.build(BATCH)
    restore(other, str(tmp_path / "version-1"))
    np.testing.assert_array_equal(other.predict(BATCH)["output"], made.predict(BATCH)["output"])


def test_a_checkpoint_of_other_tables(trainer: Callable[..., TorchTrainer], tmp_path: Path) -> None:
    trained = LocalModel(made := trainer(), restore_from="", first_step=0)
    trained.prepare(BATCH)
    _finish(tmp_path / "version-1", save(made, tmp_path / "version-1", with_optimizer=False))
    other = trainer(elasticdl.torch.Embedding(4, name="users"), elasticdl.torch.EmbeddingBag(4, table="bags"))
    other.build(BATCH)
    with pytest.raises(UserError, match="table embedding is not in this model"):
        restore(other, str(tmp_path / "version-1"))


def test_two_layers_with_one_name(trainer: Callable[..., TorchTrainer]) -> None:
    made = trainer(elasticdl.torch.Embedding(4, name="ids"), elasticdl.torch.EmbeddingBag(4, name="ids"))
    made.build(BATCH)
    with pytest.raises(UserError, match="Two embedding layers have the name ids"):
        made.tables  # noqa: B018


def _finish(folder: Path, *files: SavedFile) -> None:
    """What the master does when all have saved."""
    write_manifest(folder, Manifest(step=1, files=files, attributes={}), None)
