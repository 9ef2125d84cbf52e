"""What cannot be applied is refused whole, with a message that names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.core.server_errors import NotFound
from elasticdl.ps.core.tensors import find_not_finite
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import Push, ServerSettings

X = np.ones(2, np.float32)


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gradients": {"x": np.array([1.0, np.nan])}}, "gradient of x is not finite"),
        ({"gradients": {"x": np.array([1.0, np.inf])}}, "gradient of x is not finite"),
        ({"gradients": {"x": np.array([1.0, -np.inf], np.float16)}}, "gradient of x is not finite"),
        ({"gradients": {"x": np.ones(3, np.float32)}}, r"gradient of x has shape \[3\], x itself \[2\]"),
        ({"gradients": {"x": np.ones((1, 2), np.float32)}}, r"gradient of x has shape \[1, 2\]"),
        ({"gradients": {"x": np.ones(2, np.int64)}}, "gradient of x is of int64, x itself of float32"),
        ({"gradients": {"x": X, "y": X}}, "gradient of y is for no parameter"),
        ({"gradients": {"x": X}, "state": {"mean": np.ones(2)}}, r"state mean has shape \[2\]"),
        ({"gradients": {"x": X}, "state": {"mean": np.ones(1, np.int8)}}, "state mean is of int8"),
        ({"gradients": {"x": X}, "state": {"other": np.ones(1)}}, "state other is for no parameter"),
        ({"gradients": {"x": X}, "learning_rate": float("nan")}, "learning rate is nan"),
    ],
)
def test_refused_whole(make_store: Any, synchronous: bool, fields: dict[str, Any], message: str) -> None:
    small = make_store(asynchronous=not synchronous)
    with pytest.raises(UserError, match=message):
        small.store.workers.push(
            Push(
                **{
                    "worker": "w",
                    "sequence": 1,
                    "version": 0,
                    "learning_rate": 0.1,
                    "generation": 1,
                    **fields,
                }
            )
        )
    assert small.x == [1.0, 2.0]
    assert small.version == 0
    # The number was not used up.
    small.push([1.0, 1.0], worker="w", sequence=1)
    assert small.version == 1


def test_huge_numbers_are_finite() -> None:
    assert find_not_finite({"a": np.full(10, 3e38, np.float32), "b": np.full(10, 6e4, np.float16)}) is None
    assert find_not_finite({"a": np.zeros(0), "b": np.array(np.nan)}) == "b"
    assert find_not_finite({"counts": np.array([1, 2])}) is None


def test_gradients_of_another_precision_are_taken(make_store: Any) -> None:
    small = make_store()
    small.store.workers.push(
        Push(
            worker="w",
            sequence=1,
            version=0,
            learning_rate=1.0,
            generation=1,
            gradients={"x": np.ones(2, np.float16)},
        )
    )
    assert small.x == [0.0, 1.0]


def test_a_server_without_values_takes_no_gradients() -> None:
    store = Store(ServerSettings())
    store.close(1)
    store.open()
    with pytest.raises(NotFound, match="initial values"):
        store.workers.push(
            Push(worker="w", sequence=1, version=0, learning_rate=1.0, generation=1, gradients={"x": X})
        )


def test_parameters_without_a_gradient_stay(make_store: Any) -> None:
    small = make_store()
    small.store.workers.push(
        Push(worker="w", sequence=1, version=0, learning_rate=1.0, generation=1, gradients={})
    )
    assert small.x == [1.0, 2.0]
    assert small.version == 1
