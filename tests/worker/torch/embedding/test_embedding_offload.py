"""Large embeddings of PyTorch become tables, learn the same, and are ordinary again when exported or restored."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, write_manifest
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import LocalModel, restore
from elasticdl.worker.torch.embedding_offload import MovedBag, MovedEmbedding
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard
from elasticdl.worker.trainer_factory import make_trainer

ROWS = 3000
IDS = torch.randint(0, ROWS, (16, 3), generator=torch.Generator().manual_seed(0))
SHARD = Shard(lease_id=1, epoch=0, start=0, end=16)
BATCH = Batch(
    shard=SHARD, position=16, atomic=False, last=True, size=16, features=IDS, labels=torch.ones(16, 1)
)
LIMIT = 4 * 8 * ROWS


class Network(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.large = nn.Sequential(nn.Embedding(ROWS, 8, **options))
        self.bag = nn.EmbeddingBag(ROWS, 8, mode="sum")
        self.small = nn.Embedding(ROWS, 2)
        self.out = nn.Linear(38, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        parts = [self.large(ids).flatten(1), self.bag(ids), self.small(ids).flatten(1)]
        return self.out(torch.cat(parts, dim=1))


@pytest.fixture
def make(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    def make(network: Callable[[], Any] = Network, limit: int = LIMIT) -> TorchTrainer:
        definition = make_definition(
            model=network,
            loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
            optimizer=lambda parameters: torch.optim.Adagrad(parameters, 0.1),
            eval_metrics_fn=dict,
        )
        trainer = make_trainer(definition, move_embeddings=limit)
        assert isinstance(trainer, TorchTrainer)
        trainer.build(BATCH)
        return trainer

    return make


def test_only_large_embeddings_move_to_servers(
    make: Callable[..., TorchTrainer], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "elasticdl.worker"):
        trainer = make()
    assert [spec.name for spec in trainer.tables.specs] == ["large.0", "bag"]
    standard_normal = Initializer(kind="normal", options={"mean": 0.0, "stddev": 1.0})
    assert all(spec.initializer == standard_normal for spec in trainer.tables.specs)
    assert sorted(trainer.parameters().trainable) == ["out.bias", "out.weight", "small.weight"]
    assert "Moving the embedding large.0 (3,000 rows of 8, 0 MiB) to the parameter servers" in caplog.text
    assert trainer.remarks == [
        "Moved to the parameter servers: embeddings large.0 (3,000 rows of 8, 0 MiB), bag (3,000 rows of 8, 0 MiB)."
    ]
    small = make(limit=0)
    assert len(small.tables.specs) == len(small.remarks) == 0


def loaded() -> Any:
    model = Network()
    model.large[0].weight.data *= 1.2
    return model


def drawn_again() -> Any:
    model = Network()
    nn.init.uniform_(model.large[0].weight, -0.05, 0.05)
    return model


def zero_first() -> Any:
    model = Network()
    model.large[0].weight.data[0] = 0
    return model


def doubled() -> Any:
    model = Network()
    model.large[0].to(torch.float64)
    return model


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (loaded, "its values were set"),
        (drawn_again, "use elasticdl.torch.Embedding"),
        (zero_first, "its values were set"),
        (doubled, "its values are of torch.float64"),
        (lambda: Network(padding_idx=0), "padding_idx"),
        (lambda: Network(max_norm=1.0), "max_norm"),
    ],
    ids=["loaded", "drawn again", "a row", "float64", "padding", "norm"],
)
def test_embedding_without_equivalent_table_stays_in_worker(
    make: Callable[..., TorchTrainer],
    caplog: pytest.LogCaptureFixture,
    network: Callable[[], Any],
    why: str,
) -> None:
    trainer = make(network)
    assert [spec.name for spec in trainer.tables.specs] == ["bag"]
    assert "Not moving the embedding large.0 (3,000 rows of 8, 0 MiB)" in caplog.text
    assert why in caplog.text
    remark = trainer.remarks[-1]
    assert remark.startswith(
        "Not moved to the parameter servers: embedding large.0 (3,000 rows of 8, 0 MiB): "
    )
    assert why in remark


def test_exported_they_are_ordinary(make: Callable[..., TorchTrainer], tmp_path: Path) -> None:
    trainer = make()
    model = LocalModel(trainer, restore_from="", first_step=0)
    model.prepare(BATCH)
    for _ in range(3):
        model.train(BATCH, position=16, batches=1)
    expected = torch.from_numpy(trainer.predict(BATCH)["output"])
    trainer.export(tmp_path / "model", BATCH)
    plain = Network()
    plain.load_state_dict(torch.load(tmp_path / "model" / "state_dict.pt", weights_only=True))
    program = torch.export.load(str(tmp_path / "model" / "model.pt2")).module()
    with torch.no_grad():
        torch.testing.assert_close(plain(IDS), expected)
        torch.testing.assert_close(program(IDS), expected)
    assert plain.large[0].weight.std().item() == pytest.approx(1, abs=0.05)
    torch.testing.assert_close(torch.from_numpy(trainer.predict(BATCH)["output"]), expected)


class Shared(nn.Module):
    """One embedding under two names, and once more in a dict that is none of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.user = self.friend = nn.Embedding(ROWS, 8)
        self.by_name = {"item": self.user}
        self.out = nn.Linear(24, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        # Whatever PyTorch calls the argument.
        parts = [self.user(input=ids[:, 0]), self.friend(ids[:, 1]), self.by_name["item"](ids[:, 2])]
        return self.out(torch.cat(parts, dim=1))


def test_shared_embedding_is_replaced_everywhere(make: Callable[..., TorchTrainer], tmp_path: Path) -> None:
    trainer = make(Shared)
    assert [spec.name for spec in trainer.tables.specs] == ["user"]
    assert sorted(trainer.parameters().trainable) == ["out.bias", "out.weight"]
    model = LocalModel(trainer, restore_from="", first_step=0)
    model.prepare(BATCH)
    trainer.gradients(BATCH)
    assert sorted(trainer.row_gradients()["user"].ids) == IDS.unique().tolist()
    model.train(BATCH, position=16, batches=1)
    expected = torch.from_numpy(trainer.predict(BATCH)["output"])
    trainer.export(tmp_path / "model", BATCH)
    values = torch.load(tmp_path / "model" / "state_dict.pt", weights_only=True)
    assert values.keys() == Shared().state_dict().keys()
    plain = Shared()
    plain.load_state_dict(values)
    with torch.no_grad():
        torch.testing.assert_close(plain(IDS), expected)


@pytest.mark.parametrize(("kind", "plain"), [(MovedEmbedding, nn.Embedding), (MovedBag, nn.EmbeddingBag)])
def test_moved_embedding_stays_on_its_device(kind: Any, plain: Any) -> None:
    replaced = plain(ROWS, 8, device="meta")
    moved = kind(replaced, name="large", initializer=Initializer(kind="zeros"))
    assert {parameter.device.type for parameter in moved.parameters()} == {"meta"}


def test_evaluation_without_servers_uses_ordinary_embedding(
    make: Callable[..., TorchTrainer], tmp_path: Path
) -> None:
    trained = LocalModel(trainer := make(), restore_from="", first_step=0)
    trained.prepare(BATCH)
    trained.train(BATCH, position=16, batches=1)
    folder = tmp_path / "version-1"
    files = tuple(trained.save(folder))
    write_manifest(folder, Manifest(step=1, files=files, attributes={}), None)
    other = make(limit=0)
    restore(other, str(folder))
    np.testing.assert_allclose(other.predict(BATCH)["output"], trainer.predict(BATCH)["output"], rtol=1e-6)


def test_ids_beyond_the_last_row(make: Callable[..., TorchTrainer]) -> None:
    network: Any = make()._model
    assert isinstance(network.large[0], elasticdl.torch.Embedding)
    with pytest.raises(UserError, match=r"large.0 has 3,000 rows, and is asked for 3000"):
        network.large(torch.tensor([[0, ROWS]]))
    with pytest.raises(UserError, match="asked for -1"):
        network.bag(torch.tensor([[0, -1]]))
