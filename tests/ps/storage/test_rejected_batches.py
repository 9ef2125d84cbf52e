"""Gradients that are not finite, where some are allowed: the whole batch has no effect, anywhere, exactly once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.storage.bucket_store import Push
from elasticdl.ps.storage.update_history import UpdateHistory
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
MODEL = {"a": np.ones(50, np.float32), "b": np.ones(40, np.float32)}
CLICKS = TableSpec(name="clicks", width=2)
IDS = np.arange(100, dtype=np.int64)


def rows(value: float) -> dict[str, RowGradients]:
    values = np.ones((len(IDS), 2), np.float32)
    values[-1, -1] = value
    return {"clicks": RowGradients(ids=IDS, values=values)}


def push(client: ParameterClient, *, value: float = 1.0, dense: float = 1.0, **more: Any) -> int:
    gradients = {name: np.full_like(array, dense) for name, array in MODEL.items()}
    more = {"learning_rate": 1.0, "versions": client.pull().versions, **more}
    return client.push(gradients, rows=rows(value), state={"mean": np.ones(2)}, **more)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("bad", [{"value": np.nan}, {"value": -np.inf}, {"dense": np.inf}])
def test_nothing_of_it_is_applied(start_servers: Any, servers: int, bad: dict[str, float]) -> None:
    started = start_servers(servers, max_bad_gradients=2)
    client = started.client(tolerant=True)
    client.initialize(MODEL, {"mean": np.zeros(2)}, SGD, [CLICKS])
    before = client.pull_rows({"clicks": IDS})["clicks"]
    reached = push(client, **bad, lease_id=7, position=30, batches=3)
    assert client.passed_over == ("clicks" if "value" in bad else "a", 1)
    assert reached == 0
    after = client.pull()
    np.testing.assert_array_equal(after.trainable["a"], MODEL["a"])
    np.testing.assert_array_equal(after.state["mean"], np.zeros(2))
    np.testing.assert_array_equal(client.pull_rows({"clicks": IDS})["clicks"], before)
    for store in started.stores:
        status = store.master.status()
        assert (status.refused, status.not_finite, status.version) == (1, 1, 0)
        # If the worker dies now, its samples are done.
        last = store.master.fence("worker-0", generation=1).last
        assert (last.sequence, last.lease_id, last.position, last.batches) == (1, 7, 30, 3)


def test_training_goes_on_after_it(start_servers: Any) -> None:
    client = start_servers(2, max_bad_gradients=5).client(tolerant=True)
    client.initialize(MODEL, {"mean": np.zeros(2)}, SGD, [CLICKS])
    push(client, dense=np.nan)
    push(client)
    assert client.passed_over is None
    np.testing.assert_array_equal(client.pull().trainable["a"], MODEL["a"] - 1)
    push(client, value=np.nan)
    assert client.passed_over == ("clicks", 2)


def test_one_more_than_allowed(start_servers: Any) -> None:
    started = start_servers(2, max_bad_gradients=2)
    first, second = (started.client(worker, tolerant=True) for worker in ("worker-0", "worker-1"))
    for client in (first, second):
        client.initialize(MODEL, {"mean": np.zeros(2)}, SGD, [CLICKS])
        push(client, value=np.nan)
    with pytest.raises(
        UserError, match=r"gradient of clicks .* in a batch of worker-1\. 2 such batches were"
    ):
        push(second, value=np.nan)


def test_not_tolerated_unless_asked_for(start_servers: Any) -> None:
    client = start_servers(2).client()
    client.initialize(MODEL, {"mean": np.zeros(2)}, SGD, [CLICKS])
    with pytest.raises(UserError, match=r"gradient of a is not finite .* in a batch of worker-0\.\n"):
        push(client, dense=np.nan)


def test_gradient_that_overflows_in_transfer_is_rejected(start_servers: Any) -> None:
    client = start_servers(1, max_bad_gradients=1).client(tolerant=True, transfer="float16")
    client.initialize(MODEL, {"mean": np.zeros(2)}, SGD, [CLICKS])
    push(client, value=1e6)
    assert client.passed_over == ("clicks", 1)


def bad_push(**fields: Any) -> Push:
    return Push(
        **{
            "worker": "w",
            "sequence": 1,
            "version": 0,
            "learning_rate": 0.1,
            "generation": 1,
            "gradients": {},
            "not_finite": "x",
            **fields,
        }
    )


def test_a_repetition_counts_once(make_store: Any) -> None:
    small = make_store(max_bad_gradients=1)
    first = small.store.workers.push(bad_push())
    again = small.store.workers.push(bad_push())
    assert (first.refused, again.refused) == (1, 1)
    # A repetition is no news, however many were allowed.
    assert small.store.master.status().refused == 1
    # And it is the number of that batch: a later one under the same number is passed over.
    small.push([1.0, 1.0], worker="w", sequence=1)
    assert small.x == [1.0, 2.0]
    small.push([1.0, 1.0], worker="w", sequence=2)
    assert small.version == 1


def test_rejected_batch_is_neither_pending_nor_stale(make_store: Any) -> None:
    small = make_store(grads_to_wait=2, max_bad_gradients=3)
    small.push([1.0, 1.0], worker="w")
    assert small.store.workers.push(bad_push(worker="v")).accepted
    # It was none of the two.
    assert small.version == 0
    small.push([1.0, 1.0], worker="u")
    assert small.version == 1
    assert small.store.workers.push(bad_push(worker="v", sequence=2, version=0)).accepted
    assert small.store.master.status().refused == 2


def test_the_count_goes_with_the_buckets() -> None:
    mask = np.ones(BUCKETS, np.bool_)
    history = UpdateHistory(mask=mask, initialized=True, refused=3)
    assert UpdateHistory.of_attributes(mask, history.attributes()).refused == 3
    assert not history.same_history(UpdateHistory(mask=mask, initialized=True, refused=2))
    # Checkpoints of before know nothing of it.
    assert UpdateHistory.of_attributes(mask, {}).refused == 0
