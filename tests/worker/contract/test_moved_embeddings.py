"""Keras and PyTorch: large embeddings of the framework's own move to servers if a table can replace them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.example import encode_example
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, write_manifest
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import LocalModel, restore, save
from elasticdl.worker.trainer import Batch, Shard, Trainer
from elasticdl.worker.trainer_factory import make_trainer
from tests.worker.contract.framework import WITH_BAGS, FrameworkWithBags, load_with_bags

ROWS = 3000
IDS = np.random.default_rng(0).integers(0, ROWS, (16, 3))
LIMIT = 4 * 8 * ROWS


@pytest.fixture(params=WITH_BAGS)
def framework(request: pytest.FixtureRequest) -> FrameworkWithBags:
    return load_with_bags(request.param)


@pytest.fixture
def make(
    framework: FrameworkWithBags, make_definition: Callable[..., ModelDefinition], memory_reader: Any
) -> Callable[..., tuple[Trainer, Batch]]:
    def make(*, limit: int = LIMIT, **options: bool) -> tuple[Trainer, Batch]:
        definition = make_definition(
            model=lambda: framework.large(ROWS, **options),
            feed=framework.table_feed,
            loss=framework.loss,
            optimizer=framework.optimizer("adagrad"),
            eval_metrics_fn=dict,
        )
        trainer = make_trainer(definition, move_embeddings=limit)
        numbers, label = np.zeros(4, np.float32), np.ones(1, np.float32)
        (batch,) = trainer.batches(
            memory_reader([encode_example({"numbers": numbers, "ids": row, "label": label}) for row in IDS]),
            [Shard(lease_id=1, epoch=0, start=0, end=16)],
            mode=Mode.TRAINING,
            batch_size=16,
            max_bad_records=0,
        )
        trainer.build(batch)
        return trainer, batch

    return make


def train(trainer: Trainer, batch: Batch) -> tuple[LocalModel, list[float]]:
    model = LocalModel(trainer, restore_from="", first_step=0)
    model.prepare(batch)
    return model, [model.train(batch, position=16, batches=1) for _ in range(4)]


def test_large_embedding_moves_to_servers_and_learns(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "elasticdl.worker"):
        trainer, batch = make()
    (spec,) = trainer.tables.specs
    assert "large" in spec.name
    assert spec.width == 8
    assert spec.initializer.kind == "normal"
    # The small embedding, and the weights and the bias of the dense layer.
    assert sorted(value.size for value in trainer.parameters().trainable.values()) == [1, 10, 2 * ROWS]
    assert "Moving the embedding large (3,000 rows of 8, 0 MiB) to the parameter servers" in caplog.text
    assert trainer.remarks == ["Moved to the parameter servers: embedding large (3,000 rows of 8, 0 MiB)."]
    _, losses = train(trainer, batch)
    assert losses[-1] < losses[0]
    assert trainer.tables.own is not None
    assert sorted(trainer.tables.own.rows(spec.name)[0]) == np.unique(IDS).tolist()
    unmoved, _ = make(limit=0)
    assert len(unmoved.tables.specs) == len(unmoved.remarks) == 0


def test_embedding_with_changed_values_stays_in_worker(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    trainer, _ = make(changed=True)
    assert trainer.tables.specs == []
    assert "Not moving the embedding large (3,000 rows of 8, 0 MiB)" in caplog.text
    assert "its values were set" in caplog.text
    remark = trainer.remarks[-1]
    assert remark.startswith("Not moved to the parameter servers: embedding large (3,000 rows of 8, 0 MiB): ")
    assert "its values were set" in remark


def test_embedding_with_other_uses_of_its_values_is_refused(make: Any) -> None:
    with pytest.raises(UserError, match=r"the embedding large.* in other ways") as caught:
        train(*make(tied=True))
    assert "Omit --move_embeddings_mib" in caught.value.hint


def test_evaluation_without_servers_uses_ordinary_embedding(make: Any, tmp_path: Path) -> None:
    trainer, batch = make()
    train(trainer, batch)
    folder = tmp_path / "version-1"
    file = save(trainer, folder, with_optimizer=False)
    write_manifest(folder, Manifest(step=1, files=(file,), attributes={}), None)
    other, _ = make(limit=0)
    restore(other, str(folder))
    np.testing.assert_allclose(other.predict(batch)["output"], trainer.predict(batch)["output"], rtol=1e-5)
