"""A model whose embeddings have tables, exported: values for the same definition, and a program that needs nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard

IDS = torch.tensor([[1, -5, 2**62], [7, 7, 2**63 - 1], [-(2**63), 0, 1], [3, 2, 1]])
SHARD = Shard(lease_id=1, epoch=0, start=0, end=4)
BATCH = Batch(shard=SHARD, position=4, atomic=False, last=True, size=4, features=IDS, labels=torch.ones(4, 1))


class Network(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.first = elasticdl.torch.Embedding(4, initializer={"kind": "uniform", "low": 1, "high": 2})
        # One table for two layers, one of which is used twice.
        self.second = elasticdl.torch.EmbeddingBag(4, table="bags", mode=mode)
        self.third = nn.Sequential(elasticdl.torch.EmbeddingBag(4, table="bags", mode="sum"))
        self.out = nn.Linear(24, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        parts = [self.first(ids).flatten(1), self.second(ids), self.second(ids * 2), self.third(ids)]
        return self.out(torch.cat(parts, dim=1))


@pytest.fixture
def trained(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    def make(mode: str) -> TorchTrainer:
        definition = make_definition(
            loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
            optimizer=lambda parameters: torch.optim.Adagrad(parameters, 0.1),
            eval_metrics_fn=dict,
        )
        trainer = TorchTrainer(Network(mode), definition)
        model = LocalModel(trainer, restore_from="", first_step=0)
        model.prepare(BATCH)
        for _ in range(3):
            model.train(BATCH, position=4, batches=1)
        return trainer

    return make


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
def test_exports_give_what_the_model_gives(
    trained: Callable[..., TorchTrainer], tmp_path: Path, mode: str
) -> None:
    trainer = trained(mode)
    expected = torch.from_numpy(trainer.predict(BATCH)["output"])
    lines = trainer.export(tmp_path / "model", BATCH)
    assert [line.partition(":")[0] for line in lines] == ["values", "program", "TorchScript"]
    with torch.no_grad():
        program = torch.export.load(str(tmp_path / "model" / "model.pt2")).module()
        torch.testing.assert_close(program(IDS), expected)
        script = torch.jit.load(str(tmp_path / "model" / "model.torchscript.pt"))
        torch.testing.assert_close(script(IDS[:2]), expected[:2])
        model = Network(mode)
        model.load_state_dict(torch.load(tmp_path / "model" / "state_dict.pt", weights_only=True))
        torch.testing.assert_close(model.eval()(IDS), expected)
    # The model itself is as it was.
    torch.testing.assert_close(torch.from_numpy(trainer.predict(BATCH)["output"]), expected)


def test_a_layer_that_a_model_has_in_several_places(
    make_definition: Callable[..., ModelDefinition], tmp_path: Path
) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user = self.friend = elasticdl.torch.Embedding(4, name="people", initializer="normal")
            self.out = nn.Linear(8, 1)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.out(torch.cat([self.user(ids[:, 0]), self.friend(ids[:, 1])], dim=1))

    trainer = TorchTrainer(
        Shared(), make_definition(loss=nn.functional.mse_loss, optimizer=lambda p: torch.optim.SGD(p, 0.1))
    )
    model = LocalModel(trainer, restore_from="", first_step=0)
    model.prepare(BATCH)
    model.train(BATCH, position=4, batches=1)
    expected = torch.from_numpy(trainer.predict(BATCH)["output"])
    lines = trainer.export(tmp_path / "model", BATCH)
    assert [line.partition(":")[0] for line in lines] == ["values", "program", "TorchScript"]
    with torch.no_grad():
        program = torch.export.load(str(tmp_path / "model" / "model.pt2")).module()
        torch.testing.assert_close(program(IDS), expected)


def test_ids_without_a_row_have_the_mean_of_what_rows_start_as(
    trained: Callable[..., TorchTrainer], tmp_path: Path
) -> None:
    from elasticdl.worker.torch.table_lookup import as_ordinary

    trainer = trained("sum")
    network: Any = trainer._model
    with as_ordinary(trainer.tables), torch.no_grad():
        rows = network.first(torch.tensor([[1, 12345]]))[0]
        assert network.second(torch.tensor([[12345]])).tolist() == [[0.0] * 4]
    assert rows[1].tolist() == [1.5] * 4
    assert rows[0].tolist() != [1.5] * 4


def test_bags_by_offsets_and_weights() -> None:
    from elasticdl.ps.storage.local_tables import LocalTables
    from elasticdl.worker.table_layers import Tables
    from elasticdl.worker.torch.table_lookup import as_ordinary

    for mode in ("sum", "mean", "sqrtn"):
        model = nn.Sequential(elasticdl.torch.EmbeddingBag(4, name="bags", mode=mode, initializer="normal"))
        tables = Tables(elasticdl.torch.table_layers(model))
        tables.keep(LocalTables(tables.specs))
        ids = torch.tensor([5, 7, 9, 5, 5])
        assert isinstance(tables.own, LocalTables)
        tables.own.pull_rows({"bags": ids.unique().numpy()})
        given = [(None,), (torch.tensor([1.0, 3.0, 2.0, 1.0, 0.5]),)]
        for weights in given:
            ours = model[0](ids, torch.tensor([0, 2, 2]), *weights)
            with as_ordinary(tables):
                torch.testing.assert_close(model[0](ids, torch.tensor([0, 2, 2]), *weights), ours)
