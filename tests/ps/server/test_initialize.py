"""The first worker gives the initial values; who comes later must have the same model, and changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")


def empty_store() -> Store:
    store = Store(ServerSettings())
    store.close(1)
    store.open()
    return store


def test_the_first_one_wins(make_store: Any) -> None:
    small = make_store()
    other = InitialModel(
        trainable={"x": np.array([7.0, 8.0], np.float32)}, state={"mean": np.array([9.0])}, optimizer=SGD
    )
    assert small.store.workers.initialize(other, generation=1).done_before
    assert small.x == [1.0, 2.0]
    assert list(small.pull().state["mean"]) == [0.0]


def test_nothing_is_there_before(make_store: Any) -> None:
    store = empty_store()
    pulled = store.workers.pull(lambda pulled: pulled, generation=1)
    assert not pulled.initialized
    assert not store.master.status().initialized


@pytest.mark.parametrize(
    ("trainable", "state", "message"),
    [
        (
            {"x": np.ones(3, np.float32)},
            {"mean": np.zeros(1)},
            r"x is float32\[2\], in the model float32\[3\]",
        ),
        (
            {"x": np.ones(2, np.float64)},
            {"mean": np.zeros(1)},
            r"x is float32\[2\], in the model float64\[2\]",
        ),
        (
            {"y": np.ones(2, np.float32)},
            {"mean": np.zeros(1)},
            "x is not in the model; y is only in the model",
        ),
        ({"x": np.ones(2, np.float32)}, {}, "mean is not in the model"),
    ],
)
def test_other_model_is_refused(
    make_store: Any, trainable: dict[str, Array], state: dict[str, Array], message: str
) -> None:
    small = make_store()
    with pytest.raises(UserError, match=message) as error:
        small.store.workers.initialize(
            InitialModel(trainable=trainable, state=state, optimizer=SGD), generation=1
        )
    assert "checkpoint" in error.value.hint


def test_the_values_are_the_servers_own() -> None:
    store = empty_store()
    mine = np.ones(2, np.float32)
    mine.flags.writeable = False
    store.workers.initialize(InitialModel(trainable={"x": mine}, state={}, optimizer=SGD), generation=1)
    assert store.workers.pull(lambda pulled: not np.shares_memory(pulled.trainable["x"], mine), generation=1)


def test_wrong_optimizers_and_whole_numbers_leave_nothing_behind() -> None:
    store = empty_store()
    wrong = ps_pb2.OptimizerConfig(name="adan", flavor="keras")
    with pytest.raises(UserError, match="Did you mean adam"):
        store.workers.initialize(InitialModel(trainable={}, state={}, optimizer=wrong), generation=1)
    with pytest.raises(UserError, match="only floating-point"):
        store.workers.initialize(
            InitialModel(trainable={"n": np.ones(2, np.int64)}, state={}, optimizer=SGD), generation=1
        )
    assert not store.master.status().initialized


def test_status_counts_pushes_and_bytes(make_store: Any) -> None:
    small = make_store()
    small.push([1.0, 1.0])
    status = small.store.master.status()
    assert (status.generation, status.ready, status.initialized) == (1, True, True)
    assert (status.version, status.parameters, status.bytes, status.pushes) == (1, 2, 16, 1)
