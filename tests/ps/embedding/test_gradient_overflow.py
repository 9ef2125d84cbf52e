"""Gradients near the end of float32 (3.4e38), whose sum lies beyond it: their mean does not, and is what is applied in
synchronous training; where it is the sum that counts, in one batch, the batch is refused as any that is not finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.row_requests import RowGradients, add_up, squared_norm
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage import dense_parameters
from elasticdl.ps.storage.bucket_store import InitialModel, Push, ServerSettings
from elasticdl.ps.storage.dense_parameters import DenseParameters
from elasticdl.ps.storage.table_set import RowPart
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="torch")
CLICKS = TableSpec(name="clicks", width=2, initializer=Initializer(kind="zeros"))
LARGE = [3e38, -2.5e38]
# Numbers of a large parameter, and no whole number of parts.
COUNT = dense_parameters._LARGE + 10


def test_the_mean_of_whole_parameters(make_store: Any) -> None:
    small = make_store(SGD, grads_to_wait=3)
    for sequence in (1, 2, 3):
        small.push(LARGE, sequence=sequence)
    assert small.version == 1
    np.testing.assert_allclose(small.x, np.array(LARGE) * -0.5, rtol=1e-6)


def test_pending_gradients_move_to_another_server() -> None:
    first = DenseParameters({"w": np.zeros(2, np.float32)}, {})
    for _ in range(2):
        first.add_pending({"w": np.array(LARGE, np.float32)})
    other = DenseParameters({}, {})
    other.use_optimizer(make_optimizer(SGD))
    other.take(
        {group: {name: a.copy() for name, a in members.items()} for group, members in first.groups().items()}
    )
    other.add_pending({"w": np.array(LARGE, np.float32)})
    other.apply_pending(["w"], 3, 1.0, 1)
    assert other.values["w"].dtype == np.float32
    np.testing.assert_allclose(other.values["w"], -np.array(LARGE), rtol=1e-6)


def test_a_copy_of_what_waits_stays_as_it_was() -> None:
    parameters = DenseParameters({"w": np.zeros(2, np.float32)}, {})
    parameters.add_pending({"w": np.array([1.0, 2.0], np.float32)})
    copy = parameters.groups()["pending"]["w"]
    parameters.add_pending({"w": np.array([1.0, 2.0], np.float32)})
    np.testing.assert_array_equal(copy, [1.0, 2.0])
    np.testing.assert_array_equal(parameters.pending["w"], [2.0, 4.0])


def test_large_gradient_without_reader_is_added_in_place() -> None:
    gradient = np.arange(COUNT, dtype=np.float32).reshape(2, -1)
    parameters = DenseParameters({"w": np.zeros_like(gradient)}, {})
    parameters.add_pending({"w": gradient})
    waiting = parameters.pending["w"]
    for _ in range(2):
        parameters.add_pending({"w": gradient})
    assert parameters.pending["w"] is waiting
    np.testing.assert_array_equal(waiting, 3 * gradient)


@pytest.mark.parametrize("place", [0, COUNT // 2, COUNT - 1])
def test_a_sum_that_is_too_large_in_one_place(place: int) -> None:
    """Wherever that is found out, each gradient counts once everywhere."""
    gradient = np.ones(COUNT, np.float32)
    gradient[place] = 3e38
    parameters = DenseParameters({"w": np.zeros_like(gradient)}, {})
    for _ in range(3):
        parameters.add_pending({"w": gradient})
    np.testing.assert_array_equal(parameters.pending["w"], 3 * gradient.astype(np.float64))


@pytest.mark.parametrize("shape", [(), (3, 2), (COUNT // 2, 2)])
def test_pending_gradients_of_any_memory_layout_are_added(shape: tuple[int, ...]) -> None:
    gradient = np.asfortranarray(np.arange(float(np.prod(shape))).reshape(shape).astype(np.float32))
    parameters = DenseParameters({"w": np.zeros(shape, np.float32)}, {})
    for given in (gradient, np.ascontiguousarray(gradient), gradient.astype(np.float64)):
        parameters.add_pending({"w": given.reshape(shape)})
    np.testing.assert_array_equal(parameters.pending["w"], 3 * gradient)


def test_the_mean_of_rows() -> None:
    store = Store(ServerSettings(grads_to_wait=3))
    store.close(1)
    store.open()
    store.workers.initialize(
        InitialModel(trainable={}, state={}, optimizer=SGD, tables=[CLICKS]), generation=1
    )
    ids = np.arange(50, dtype=np.int64)
    for sequence in (1, 2, 3):
        values = np.tile(np.array(LARGE, np.float32), (len(ids), 1))
        push = Push(
            worker="w",
            sequence=sequence,
            version=0,
            learning_rate=1.0,
            gradients={},
            rows={"clicks": RowPart(ids=ids, values=values)},
            generation=1,
        )
        assert store.workers.push(push).accepted
    out = np.empty((len(ids), 2), np.float32)
    store.workers.pull_rows([("clicks", ids)], lambda sizes: [out], generation=1)
    np.testing.assert_allclose(out, np.tile(-np.array(LARGE), (len(ids), 1)), rtol=1e-6)


def of_two_lookups() -> dict[str, RowGradients]:
    """Both have the last id."""
    halves = [np.arange(60, dtype=np.int64), np.arange(59, 100, dtype=np.int64)]
    parts = []
    for ids in halves:
        values = np.ones((len(ids), 2), np.float32)
        values[ids == 59] = 3e38
        parts.append(RowGradients(ids=ids, values=values))
    return {"clicks": add_up(parts)}


@pytest.mark.parametrize("servers", [1, 3])
def test_the_sum_of_one_batch_is_refused(start_servers: Any, servers: int) -> None:
    started = start_servers(servers)
    client = started.client()
    client.initialize({"a": np.ones(3, np.float32)}, {}, SGD, [CLICKS])
    with pytest.raises(UserError, match=r"clicks is not finite .* in a batch of worker-0"):
        client.push({"a": np.ones(3, np.float32)}, rows=of_two_lookups(), learning_rate=1.0)
    rows = client.pull_rows({"clicks": np.arange(100)})["clicks"]
    assert not rows.any()
    np.testing.assert_array_equal(client.pull().trainable["a"], np.ones(3))


@pytest.mark.parametrize("servers", [1, 3])
def test_the_sum_of_one_batch_is_passed_over_where_that_is_allowed(start_servers: Any, servers: int) -> None:
    started = start_servers(servers, max_bad_gradients=1)
    client = started.client(tolerant=True)
    client.initialize({"a": np.ones(3, np.float32)}, {}, SGD, [CLICKS])
    client.push({"a": np.ones(3, np.float32)}, rows=of_two_lookups(), learning_rate=1.0)
    assert client.passed_over == ("clicks", 1)
    assert [store.master.status().not_finite for store in started.stores] == [1] * servers
    assert not client.pull_rows({"clicks": np.arange(100)})["clicks"].any()


def test_a_norm_whose_square_is_too_large() -> None:
    """Gradients clipped by it would all become zero, silently."""
    gradients = [np.array([3e20, 0.0], np.float32), np.array([[4e20]], np.float32)]
    assert squared_norm(gradients) == pytest.approx(25e40, rel=1e-6)
    assert squared_norm([np.array([np.inf], np.float32)]) == np.inf
