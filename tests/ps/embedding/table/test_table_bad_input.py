"""What does not fit is refused with a message, and changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.embedding.lookups import as_initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec, as_ids
from elasticdl.ps.storage.table_set import of_config, to_config
from elasticdl.wire import ps_pb2

ADAGRAD = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")


@pytest.fixture
def table() -> Table:
    return Table(TableSpec(name="clicks", width=4), make_optimizer(ADAGRAD), buckets=8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gradients_that_are_not_finite(table: Table, bad: float, dtype: type[np.floating[Any]]) -> None:
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
        ({"width": 0}, "a width of 0"),
        ({"width": 3.5}, "a width of 3.5"),
        ({"width": "wide"}, "a width of 'wide'"),
        ({"width": 1 << 40}, "a width of 1099511627776"),
        ({"admit_after": 0}, "an admit_after of 0: it must be a whole number from 1 to 4,294,967,295"),
        ({"admit_after": 1 << 33}, "an admit_after of 8589934592"),
        ({"expire_after": -1}, "an expire_after of -1"),
        ({"seed": 1 << 63}, "a seed of 9223372036854775808"),
    ],
)
def test_impossible_tables(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"The table clicks cannot have {message}"):
        TableSpec(**{"name": "clicks", "width": 4, **fields})


@pytest.mark.parametrize(
    ("initializer", "message"),
    [
        ({"kind": "uniform", "low": 1, "high": -1}, "has low 1 and high -1"),
        ({"kind": "uniform", "low": 0.1}, "has low 0.1 and high 0.05"),
        ({"kind": "normal", "stddev": -1}, "has stddev -1"),
        ({"kind": "truncated_normal", "stddev": -0.5}, "has stddev -0.5"),
        ({"kind": "glorot_uniform", "fan_in": -100}, "has fan_in -100"),
        ({"kind": "glorot_normal", "fan_out": -1}, "has fan_out -1"),
        ({"kind": "constant", "value": 1e39}, r"has value 1e\+39, which is too large"),
    ],
)
def test_rows_that_cannot_start_so(initializer: dict[str, Any], message: str) -> None:
    kind = initializer["kind"]
    with pytest.raises(UserError, match=f"The initializer {kind} of the table clicks {message}"):
        TableSpec(name="clicks", width=4, initializer=as_initializer(initializer))


@pytest.mark.parametrize("value", ["big", None, float("nan"), float("inf")])
def test_options_that_are_no_numbers(value: Any) -> None:
    with pytest.raises(
        UserError, match=r"The option stddev of the initializer normal is .*, which is no number"
    ):
        as_initializer({"kind": "normal", "stddev": value})


def test_extreme_valid_options_are_accepted() -> None:
    narrow = TableSpec(name="t", width=1, seed=-(1 << 63), admit_after=(1 << 32) - 1)
    assert of_config(to_config(narrow)) == narrow
    same = as_initializer({"kind": "uniform", "low": np.float32(0.5), "high": 1})
    made = Table(TableSpec(name="t", width=2, initializer=same), make_optimizer(ADAGRAD), buckets=8)
    assert ((made.gather([1, 2, 3]) >= 0.5) & (made.gather([1, 2, 3]) <= 1)).all()


def test_a_bucket_that_does_not_exist(table: Table) -> None:
    with pytest.raises(IndexError):
        table.export(8)
