"""Optimizers of tf.keras before 2.11: a server does what they do, or they are refused. Keras 3 has none of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.worker.keras.optimizer import KerasOptimizer

legacy = tf.keras.optimizers.legacy
SHRUNK = {
    "l1_regularization_strength": 0.01,
    "l2_regularization_strength": 0.02,
    "l2_shrinkage_regularization_strength": 0.01,
    "beta": 0.1,
}
SAME: dict[str, Callable[[], Any]] = {
    "sgd": lambda: legacy.SGD(0.1),
    "momentum": lambda: legacy.SGD(0.1, momentum=0.9),
    "nesterov": lambda: legacy.SGD(0.1, momentum=0.9, nesterov=True),
    "sgd with decay": lambda: legacy.SGD(0.1, decay=0.1),
    "adam": lambda: legacy.Adam(0.01),
    "amsgrad": lambda: legacy.Adam(0.01, amsgrad=True, epsilon=1e-3),
    "adam with decay": lambda: legacy.Adam(0.01, decay=0.1),
    "adagrad": lambda: legacy.Adagrad(0.1),
    "rmsprop with momentum": lambda: legacy.RMSprop(0.01, momentum=0.9),
    "centered rmsprop with momentum": lambda: legacy.RMSprop(0.01, momentum=0.5, centered=True),
    "adadelta": lambda: legacy.Adadelta(1.0),
    "adamax": lambda: legacy.Adamax(0.01, decay=0.01),
    "ftrl": lambda: legacy.Ftrl(0.1),
    "ftrl, shrunk": lambda: legacy.Ftrl(0.1, **SHRUNK),
}


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("name", SAME)
def test_a_server_does_what_it_does(name: str, scale: float) -> None:
    known = KerasOptimizer(SAME[name], name="test")
    server, native = make_optimizer(known.config({})), SAME[name]()
    random = np.random.default_rng(0)
    value = random.normal(size=(5, 4)).astype(np.float32)
    variable, slots = tf.Variable(value), server.slots("value", value)
    start = value.copy()
    for step in range(1, 61):
        gradient = (scale * random.normal(size=(5, 4))).astype(np.float32)
        native.apply_gradients([(tf.constant(gradient), variable)])
        server.apply("value", value, gradient, slots, known.learning_rate(step - 1), step)
    moved = np.abs(variable.numpy() - start).max()
    np.testing.assert_allclose(value, variable.numpy(), rtol=1e-6, atol=1e-5 * moved + 1e-9)


OTHERS: dict[str, Callable[[Any], Any]] = {
    "from nothing": lambda kinds: kinds.Adagrad(0.1, initial_accumulator_value=0.0),
    "large epsilon": lambda kinds: kinds.Adagrad(0.1, epsilon=0.01),
    "nadam": lambda kinds: kinds.Nadam(0.1),
    "rmsprop": lambda kinds: kinds.RMSprop(0.1),
    "centered": lambda kinds: kinds.RMSprop(0.1, centered=True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_legacy_optimizer_with_other_formula_is_rejected(name: str) -> None:
    with pytest.raises(UserError, match=r"legacy.* computes differently"):
        KerasOptimizer(lambda: OTHERS[name](legacy), name="test").config({})
    KerasOptimizer(lambda: OTHERS[name](tf.keras.optimizers), name="test").config({})
