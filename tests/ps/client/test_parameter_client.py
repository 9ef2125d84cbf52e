"""Workers train one model on several servers as if it were one."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.client.parameter_client import StaleGradients
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.server_errors import (
    CallStopped,
    NotFound,
    ServerFailure,
    ServersUnreachable,
    StaleGeneration,
    WorkerFenced,
)
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.storage.bucket_store import Push
from elasticdl.wire import ps_pb2

ADAM = ps_pb2.OptimizerConfig(name="adam", flavor="keras")
SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
SHAPES: dict[str, tuple[int, ...]] = {"a": (40, 3), "b": (7,), "c": (), "d": (2, 0), "e": (100,)}


def made_up(seed: int) -> dict[str, Array]:
    chance = np.random.default_rng(seed)
    return {name: np.asarray(chance.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


MODEL = made_up(0)
STATE = {"mean": np.array([1.0, 2.0]), "count": np.array(3)}


@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_same_as_the_optimizer_by_itself(start_servers: Any, count: int) -> None:
    client = start_servers(count).client()
    assert client.initialize(MODEL, STATE, ADAM) is False
    optimizer = make_optimizer(ADAM)
    expected = {name: value.copy() for name, value in MODEL.items()}
    slots = {name: optimizer.slots(name, value) for name, value in expected.items()}
    for step in range(1, 21):
        gradients = made_up(step)
        state = {"mean": np.array([step, step], np.float64), "count": np.array(step)}
        assert client.push(gradients, state=state, learning_rate=0.1 / step) == step
        for name, value in expected.items():
            optimizer.apply(name, value, gradients[name], slots[name], 0.1 / step, step)
    pulled = client.pull()
    assert pulled.initialized
    assert set(pulled.versions.tolist()) == {20}
    assert pulled.trainable.keys() == MODEL.keys()
    for name, value in expected.items():
        assert pulled.trainable[name].dtype == np.float32
        np.testing.assert_array_equal(pulled.trainable[name], value)
    np.testing.assert_array_equal(pulled.state["mean"], [20.0, 20.0])
    assert pulled.state["count"] == 20


def test_many_workers_at_once(start_servers: Any) -> None:
    """Gradients of all workers add up, and none is lost or counted twice."""
    servers = start_servers(3)
    batches = 25

    def work(number: int) -> None:
        client = servers.client(f"worker-{number}")
        client.initialize(MODEL, {}, SGD)
        for _ in range(batches):
            gradients = {name: np.full(shape, number + 1, np.float32) for name, shape in SHAPES.items()}
            client.push(gradients, learning_rate=1.0)

    # Whole numbers add up without rounding, so their order does not show.
    model = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    servers.client("first").initialize(model, {}, SGD)
    with futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    pulled = servers.client("last").pull()
    assert set(pulled.versions.tolist()) == {6 * batches}
    for name in SHAPES:
        np.testing.assert_array_equal(
            pulled.trainable[name], -batches * sum(range(1, 7)) * np.ones(SHAPES[name])
        )


def test_nothing_is_pulled_twice(start_servers: Any) -> None:
    client = start_servers(3).client()
    client.initialize(MODEL, {}, SGD)
    first = client.pull()
    again = client.pull(known_versions=first.versions)
    assert again.initialized
    assert not again.trainable
    np.testing.assert_array_equal(again.versions, first.versions)


def test_a_model_is_never_pulled_in_part(start_servers: Any) -> None:
    """Even if only some servers have something new."""
    servers = start_servers(3)
    client = servers.client()
    client.initialize(MODEL, STATE, SGD)
    known = client.pull().versions.copy()
    known[1] = -5
    pulled = client.pull(known_versions=known)
    assert pulled.trainable.keys() == MODEL.keys()
    assert pulled.state.keys() == STATE.keys()


def test_pull_before_initialization_returns_nothing(start_servers: Any) -> None:
    client = start_servers(2).client()
    pulled = client.pull()
    assert not pulled.initialized
    assert not pulled.trainable


def test_second_initialization_returns_true(start_servers: Any) -> None:
    servers = start_servers(2)
    servers.client("worker-0").initialize(MODEL, {}, SGD)
    second = servers.client("worker-1")
    assert (
        second.initialize({name: np.asarray(value + 1, np.float32) for name, value in MODEL.items()}, {}, SGD)
        is True
    )
    np.testing.assert_array_equal(second.pull().trainable["a"], MODEL["a"])


def test_frozen_copies(start_servers: Any) -> None:
    servers = start_servers(2)
    client = servers.client()
    client.initialize(MODEL, {}, SGD)
    for store in servers.stores:
        store.master.freeze("barrier-1", generation=1)
    client.push(made_up(1), learning_rate=1.0)
    frozen = client.pull(frozen="barrier-1")
    assert set(frozen.versions.tolist()) == {0}
    np.testing.assert_array_equal(frozen.trainable["a"], MODEL["a"])
    with pytest.raises(NotFound, match="no snapshot 'barrier-2'"):
        client.pull(frozen="barrier-2")


def test_a_gradient_that_is_not_finite_reaches_no_server(start_servers: Any) -> None:
    servers = start_servers(2)
    client = servers.client()
    client.initialize(MODEL, {}, SGD)
    gradients = made_up(1)
    gradients["e"][50] = np.nan
    with pytest.raises(UserError, match="gradient of e is not finite"):
        client.push(gradients, learning_rate=1.0)
    assert [store.master.status().pushes for store in servers.stores] == [0, 0]
    client.push(made_up(1), learning_rate=1.0)
    assert [store.master.status().pushes for store in servers.stores] == [1, 1]


def test_validation_errors_of_servers_reach_the_caller(start_servers: Any) -> None:
    servers = start_servers(1)
    client = servers.client()
    client.initialize(MODEL, {}, SGD)
    with pytest.raises(UserError, match=r"gradient of b has shape \[8\], b itself \[7\]"):
        client.push({"b": np.ones(8, np.float32)}, learning_rate=1.0)
    with pytest.raises(UserError, match="f was not in the model"):
        client.push({"f": np.ones(8, np.float32)}, learning_rate=1.0)
    with pytest.raises(
        UserError, match=r"another model: b is float32\[7\], in the model float32\[8\]"
    ) as error:
        servers.client("other").initialize({**MODEL, "b": np.ones(8, np.float32)}, {}, SGD)
    assert "checkpoint" in error.value.hint
    with pytest.raises(UserError, match="Did you mean sgd"):
        start_servers(1).client().initialize(MODEL, {}, ps_pb2.OptimizerConfig(name="sdg", flavor="keras"))


def test_a_refused_batch_comes_again_and_counts_once_everywhere(start_servers: Any) -> None:
    servers = start_servers(2, asynchronous=False)
    client = servers.client("worker-0")
    client.initialize(MODEL, {}, SGD)
    versions = client.pull().versions
    # Another worker has got through to one of the servers only, so far.
    servers.stores[1].workers.push(
        Push(worker="worker-1", sequence=1, version=0, learning_rate=1.0, gradients={}, generation=1)
    )
    with pytest.raises(StaleGradients):
        client.push(made_up(1), learning_rate=1.0, versions=versions, lease_id=1, position=5, batches=1)
    assert client.last_sequence == 0
    client.push(
        made_up(2), learning_rate=1.0, versions=client.pull().versions, lease_id=1, position=5, batches=1
    )
    assert client.last_sequence == 1
    assert [store.master.status().pushes for store in servers.stores] == [1, 2]
    assert [store.master.fence("worker-0", generation=1).last.sequence for store in servers.stores] == [1, 1]


def test_another_batch_after_a_refused_one_has_another_number(start_servers: Any) -> None:
    servers = start_servers(2, asynchronous=False)
    client = servers.client("worker-0")
    client.initialize(MODEL, {}, SGD)
    servers.stores[1].workers.push(
        Push(worker="worker-1", sequence=1, version=0, learning_rate=1.0, gradients={}, generation=1)
    )
    versions = np.zeros(BUCKETS, np.int64)
    with pytest.raises(StaleGradients):
        client.push(made_up(1), learning_rate=1.0, versions=versions, lease_id=1, position=5, batches=1)
    # The shard was taken away; this is the next one. Server 0 must not take it for the refused batch.
    client.push(
        made_up(2), learning_rate=1.0, versions=client.pull().versions, lease_id=2, position=3, batches=1
    )
    last = [store.master.fence("worker-0", generation=1).last for store in servers.stores]
    assert [(one.sequence, one.lease_id, one.position) for one in last] == [(2, 2, 3), (2, 2, 3)]


def test_another_batch_after_a_wrong_one_has_another_number(start_servers: Any) -> None:
    servers = start_servers(2)
    client = servers.client()
    client.initialize(MODEL, {}, SGD)
    wrong = {**made_up(1), "b": np.ones(8, np.float32)}
    with pytest.raises(UserError, match=r"gradient of b has shape \[8\]"):
        client.push(wrong, learning_rate=1.0)
    # The server that found nothing wrong with its part must not take this for the same batch.
    client.push(made_up(2), learning_rate=1.0)
    assert sorted(store.master.status().pushes for store in servers.stores) == [1, 2]


def test_errors_that_end_the_worker(start_servers: Any) -> None:
    servers = start_servers(1)
    client = servers.client("worker-0")
    client.initialize(MODEL, {}, SGD)
    servers.stores[0].master.fence("worker-0", generation=1)
    with pytest.raises(WorkerFenced):
        client.push(made_up(1), learning_rate=1.0)
    servers.stores[0].close(2)
    servers.stores[0].open()
    with pytest.raises(StaleGeneration):
        client.pull()
    with pytest.raises(ServerFailure, match="token"):
        servers.client(token="another").pull()


def test_push_needs_a_model(start_servers: Any) -> None:
    with pytest.raises(ValueError, match="initialize comes before push"):
        start_servers(1).client().push({}, learning_rate=1.0)


def test_waiting_for_a_generation_to_come(start_servers: Any) -> None:
    servers = start_servers(2)
    asked = threading.Event()

    def stop() -> bool:
        asked.set()
        return False

    client = servers.client(generation=2, stop=stop)
    with futures.ThreadPoolExecutor(1) as pool:
        pulling = pool.submit(client.pull)
        assert asked.wait(30)
        for store in servers.stores:
            store.close(2)
            store.open()
        assert pulling.result().initialized is False


def test_stop_ends_waiting(start_servers: Any) -> None:
    servers = start_servers(2)
    answers = iter([False, False])
    client = servers.client(generation=2, stop=lambda: next(answers, True))
    with pytest.raises(CallStopped, match="Pull was given up"):
        client.pull()


def test_waiting_for_a_server_that_is_not_there(start_servers: Any) -> None:
    servers = start_servers(2)
    address = servers.addresses[1]
    servers.servers[1].stop()
    answers = iter([False])
    with pytest.raises(CallStopped):
        servers.client(addresses=[servers.addresses[0], address], stop=lambda: next(answers, True)).pull()
    with pytest.raises(ServersUnreachable, match=f"no answer .* for 0.3 seconds: {address}$"):
        servers.client(addresses=[servers.addresses[0], address], patience_seconds=0.3).pull()
