"""Every framework: tables of a model are no parameters, are evaluated without new rows, and are restored by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, SavedFile, write_manifest
from elasticdl.ps.embedding.lookups import Lookups
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.model.model_store import LocalModel, restore, save
from elasticdl.worker.trainer import Batch, Trainer
from tests.worker.contract.framework import Framework

Batches = Callable[..., list[Batch]]


def finish(folder: Path, *files: SavedFile) -> str:
    write_manifest(folder, Manifest(step=1, files=files, attributes={}), None)
    return str(folder)


def test_tables_are_no_parameters(trainer: Callable[..., Trainer], batches: Batches) -> None:
    made = trainer("table")
    made.build(batches(made)[0])
    assert [(spec.name, spec.width) for spec in made.tables.specs] == [("rows", 4)]
    values = made.parameters().trainable
    # The weights and the bias of the dense layer.
    assert sorted(value.size for value in values.values()) == [1, 16]


def test_evaluation_and_prediction_create_no_rows(trainer: Callable[..., Trainer], batches: Batches) -> None:
    made = trainer("table")
    batch, *_ = batches(made)
    made.build(batch)
    made.tables.join(Lookups(source := LocalTables(made.tables.specs)))
    made.evaluate(batch)
    made.predict(batch)
    assert len(source) == 0


def test_evaluation_restores_rows_of_checkpoint_and_creates_none(
    trainer: Callable[..., Trainer], batches: Batches, tmp_path: Path
) -> None:
    model = LocalModel(made := trainer("table", "adagrad"), restore_from="", first_step=0)
    first, second, *_ = batches(made)
    model.prepare(first)
    model.train(first, position=0, batches=1)
    place = finish(tmp_path / "saved", save(made, tmp_path / "saved", with_optimizer=False))
    other = trainer("table", "adagrad")
    other.build(first)
    restore(other, place)
    np.testing.assert_array_equal(other.predict(first)["output"], made.predict(first)["output"])
    other.predict(second)
    other.evaluate(second)
    assert made.tables.own is not None
    assert other.tables.own is not None
    assert other.tables.own.rows("rows")[0].tolist() == made.tables.own.rows("rows")[0].tolist()


def test_checkpoint_of_other_tables_is_refused(
    trainer: Callable[..., Trainer], batches: Batches, framework: Framework, tmp_path: Path
) -> None:
    model = LocalModel(made := trainer("table"), restore_from="", first_step=0)
    first, *_ = batches(made)
    model.prepare(first)
    place = finish(tmp_path / "saved", save(made, tmp_path / "saved", with_optimizer=False))
    other = trainer(lambda: framework.table("users"))
    other.build(first)
    with pytest.raises(UserError, match="table rows is not in this model"):
        restore(other, place)


def test_two_layers_with_one_table_name_are_refused(
    trainer: Callable[..., Trainer], batches: Batches
) -> None:
    made = trainer("two_tables_of_one_name")
    made.build(batches(made)[0])
    with pytest.raises(UserError, match="Two embedding layers have the name rows"):
        made.tables  # noqa: B018
