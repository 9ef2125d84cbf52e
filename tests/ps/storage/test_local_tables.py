"""Tables in this process: looked up, trained, written down and read again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.checkpoint.table_files import TABLES
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.lookups import Lookups
from elasticdl.ps.embedding.optimizers import Optimizer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.storage.local_tables import LocalTables

USERS = TableSpec(name="users", width=4, initializer=Initializer(kind="normal"))
ITEMS = TableSpec(name="items", width=2)
IDS = np.array([7, -(2**63), 2**63 - 1, 0])


def gradients(ids: list[int], value: float, width: int = 4) -> RowGradients:
    return RowGradients(ids=np.array(ids, np.int64), values=np.full((len(ids), width), value, np.float32))


def write(tables: LocalTables, path: Path) -> Path:
    with ArrayFileWriter(path) as file:
        file.finish(tables.write(file))
    return path


def test_only_what_is_to_be_made_is_made() -> None:
    tables = LocalTables([USERS, ITEMS])
    first = tables.pull_rows({"users": IDS}, create=False)["users"]
    assert len(tables) == 0
    np.testing.assert_array_equal(tables.pull_rows({"users": IDS})["users"], first)
    assert len(tables) == 4


def test_gradients_update_rows() -> None:
    tables = LocalTables([USERS], optimizer=Optimizer("torch", "sgd", {}))
    before = tables.pull_rows({"users": IDS})["users"]
    tables.apply({"users": gradients([7, 0], 1.0)}, learning_rate=0.5)
    after = tables.pull_rows({"users": IDS})["users"]
    np.testing.assert_allclose(after, before - 0.5 * np.array([[1], [0], [0], [1]]), rtol=1e-6)


def test_several_lookups_of_one_table_are_one_update() -> None:
    tables = LocalTables([USERS], optimizer=Optimizer("torch", "adagrad", {}))
    lookups = Lookups(tables)
    found = lookups.find("users", np.array([3, 3, 5]), create=True)
    np.testing.assert_array_equal(found.ids[found.inverse], [3, 3, 5])
    lookups.add("users", gradients([3, 5], 1.0))
    lookups.add("users", gradients([5, 6], 2.0))
    taken = lookups.take()["users"]
    sums = dict(zip(taken.ids.tolist(), taken.values[:, 0].tolist(), strict=True))
    assert sums == {3: 1.0, 5: 3.0, 6: 2.0}
    assert lookups.take() == {}


@pytest.mark.parametrize("name", ["adagrad", "adam"])
def test_written_and_read_again_they_go_on_the_same(name: str, tmp_path: Path) -> None:
    def tables() -> LocalTables:
        return LocalTables([USERS, ITEMS], optimizer=Optimizer("torch", name, {}))

    first = tables()
    for step in range(3):
        first.pull_rows({"users": IDS, "items": IDS})
        first.apply({"users": gradients([7, step], 1.0), "items": gradients([0], -1.0, 2)}, learning_rate=0.1)
    second = tables()
    second.restore([[write(first, tmp_path / "tables.edl")]])
    for one in (first, second):
        one.apply({"users": gradients([7, 0], 0.5)}, learning_rate=0.1)
    for table in ("users", "items"):
        ids, values = first.rows(table)
        restored_ids, restored = second.rows(table)
        np.testing.assert_array_equal(ids, restored_ids)
        np.testing.assert_array_equal(values, restored)
    assert first.step == second.step == 4


def test_values_stay_when_the_optimizer_changes() -> None:
    tables = LocalTables([USERS], optimizer=Optimizer("torch", "adagrad", {}))
    tables.pull_rows({"users": IDS})
    tables.apply({"users": gradients([7], 1.0)}, learning_rate=0.1)
    ids, before = tables.rows("users")
    tables.use_optimizer(Optimizer("torch", "adam", {}))
    np.testing.assert_array_equal(tables.rows("users")[1], before)
    tables.apply({"users": gradients([7], 1.0)}, learning_rate=0.1)
    # The first step of Adam is as long as the learning rate.
    moved = (before - tables.rows("users")[1])[ids == 7]
    np.testing.assert_allclose(moved, np.full((1, 4), 0.1), rtol=1e-5)


def test_rows_without_lookups_expire() -> None:
    spec = TableSpec(name="users", width=4, expire_after=4)
    tables = LocalTables([spec], optimizer=Optimizer("torch", "sgd", {}))
    tables.pull_rows({"users": IDS})
    for _ in range(6):
        tables.pull_rows({"users": IDS[:1]})
        tables.apply({"users": gradients([7], 1.0)}, learning_rate=0.1)
    assert tables.rows("users")[0].tolist() == [7]


def test_unknown_or_mismatching_tables_are_rejected(tmp_path: Path) -> None:
    tables = LocalTables([USERS])
    with pytest.raises(UserError, match="no table itmes"):
        tables.pull_rows({"itmes": IDS})
    with pytest.raises(UserError, match="there already"):
        tables.declare([TableSpec(name="users", width=8)])
    files = [[write(tables, tmp_path / "tables.edl")]]
    with pytest.raises(UserError, match="items is missing"):
        LocalTables([USERS, ITEMS]).restore(files)
    with pytest.raises(UserError, match="users is not in this model"):
        LocalTables([ITEMS]).restore(files)
    with pytest.raises(UserError, match="have 4 numbers"):
        LocalTables([TableSpec(name="users", width=8)]).restore(files)


def trained(spec: TableSpec, steps: int) -> LocalTables:
    tables = LocalTables([spec], optimizer=Optimizer("torch", "sgd", {}))
    for _ in range(steps):
        tables.apply({spec.name: gradients(list(range(50)), 1.0)}, learning_rate=0.1)
    return tables


def test_rows_that_begin_to_expire_are_new_then(tmp_path: Path) -> None:
    files = [[write(trained(USERS, 20), tmp_path / "tables.edl")]]
    tables = trained(replace(USERS, expire_after=4), 0)
    tables.restore(files)
    for _ in range(4):
        tables.apply({"users": gradients([7], 1.0)}, learning_rate=0.1)
        assert len(tables) == 50
    for _ in range(2):
        tables.apply({"users": gradients([7], 1.0)}, learning_rate=0.1)
    assert len(tables) == 1


def test_the_step_of_servers_goes_on(tmp_path: Path) -> None:
    """Servers write the model's version, and no step of tables."""
    spec = replace(USERS, expire_after=4)
    with ArrayFileWriter(tmp_path / "tables.edl") as file:
        file.finish({TABLES: trained(spec, 20).write(file)[TABLES], "version": 20})
    tables = trained(spec, 0)
    tables.restore([[tmp_path / "tables.edl"]])
    assert tables.step == 20
    for _ in range(6):
        tables.apply({"users": gradients([7], 1.0)}, learning_rate=0.1)
    assert len(tables) == 1
