"""What does not fit is refused with a message, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.jobs.errors import UserError
from elasticdl.ps.optimizers import make_optimizer
from elasticdl.ps.table import Table, TableSpec, as_ids
from elasticdl.wire import ps_pb2

ADAGRAD = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")


@pytest.fixture
def table() -> Table:
    return Table(TableSpec(name="clicks", width=4), make_optimizer(ADAGRAD), buckets=8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gradients_that_are_not_finite(table: Table, bad: float, dtype: type) -> None:
    before = table.gather([1, 2, 3])
    gradients = np.ones((3, 4), dtype)
    gradients[1, 2] = gradients[2, 0] = bad
    with pytest.raises(UserError, match=r"table clicks is not finite \(NaN or infinity\) in 2 places"):
        table.update([1, 2, 3], gradients, learning_rate=0.1)
    np.testing.assert_array_equal(table.gather([1, 2, 3]), before)


def test_gradients_of_another_shape(table: Table) -> None:
    with pytest.raises(UserError, match=r"clicks has shape \[3, 5\] for 3 ids; its rows have 4 numbers"):
        table.update([1, 2, 3], np.ones((3, 5), np.float32), learning_rate=0.1)
    with pytest.raises(UserError, match=r"shape \[2, 4\] for 3 ids"):
        table.update([1, 2, 3], np.ones((2, 4), np.float32), learning_rate=0.1)
    assert len(table) == 0


@pytest.mark.parametrize("ids", [[1 << 63], [-(1 << 63) - 1], np.array([1 << 63], np.uint64)])
def test_ids_outside_of_int64(table: Table, ids: object) -> None:
    with pytest.raises(UserError, match="Ids for clicks are outside of int64"):
        table.gather(ids)


def test_ids_that_are_no_numbers(table: Table) -> None:
    with pytest.raises(UserError, match="of float64, and must be whole numbers"):
        table.gather([1.5])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32, np.uint64])
def test_other_whole_numbers_are_ids_too(dtype: type) -> None:
    found = as_ids(np.array([[1, 2], [3, 100]], dtype))
    assert found.dtype == np.int64
    assert found.tolist() == [1, 2, 3, 100]


def test_no_ids_at_all(table: Table) -> None:
    assert table.gather([]).shape == (0, 4)
    table.update([], np.empty((0, 4), np.float32), learning_rate=0.1)
    assert len(table) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "width of 0"),
        ({"admit_after": 0}, "after 0 sight"),
        ({"expire_after": -1}, "after -1 steps"),
    ],
)
def test_impossible_tables(fields: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TableSpec(**{"name": "t", "width": 4, **fields})  # type: ignore[arg-type]


def test_a_bucket_that_does_not_exist(table: Table) -> None:
    with pytest.raises(IndexError):
        table.export(8)
