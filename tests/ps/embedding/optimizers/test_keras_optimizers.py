"""Our optimizers are numerically those of the Keras that is installed: tf.keras 2.15 or Keras 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import RULES

# The name here, the class there, options here, options there where they are called otherwise.
CASES: list[tuple[str, str, dict[str, float], dict[str, Any]]] = [
    ("sgd", "SGD", {}, {}),
    ("sgd", "SGD", {"momentum": 0.9}, {}),
    ("sgd", "SGD", {"momentum": 0.9, "nesterov": 1}, {}),
    ("sgd", "SGD", {"momentum": 0.5, "weight_decay": 0.01}, {}),
    ("adagrad", "Adagrad", {}, {}),
    ("adagrad", "Adagrad", {"initial_accumulator_value": 0.5, "epsilon": 1e-3, "weight_decay": 0.1}, {}),
    ("adam", "Adam", {}, {}),
    ("adam", "Adam", {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4}, {}),
    ("adam", "Adam", {"amsgrad": 1}, {}),
    ("adam", "Adam", {"weight_decay": 0.02}, {}),
    ("adamw", "AdamW", {}, {}),
    ("adamw", "AdamW", {"weight_decay": 0.1, "amsgrad": 1}, {}),
    ("rmsprop", "RMSprop", {}, {}),
    ("rmsprop", "RMSprop", {"rho": 0.8, "momentum": 0.9, "epsilon": 1e-3}, {}),
    ("rmsprop", "RMSprop", {"centered": 1}, {}),
    ("rmsprop", "RMSprop", {"centered": 1, "momentum": 0.5, "weight_decay": 0.01}, {}),
    ("adadelta", "Adadelta", {}, {}),
    ("adadelta", "Adadelta", {"rho": 0.9, "epsilon": 1e-4, "weight_decay": 0.01}, {}),
    ("adamax", "Adamax", {}, {}),
    ("adamax", "Adamax", {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3, "weight_decay": 0.01}, {}),
    ("nadam", "Nadam", {}, {}),
    ("nadam", "Nadam", {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3, "weight_decay": 0.01}, {}),
    ("ftrl", "Ftrl", {}, {}),
    (
        "ftrl",
        "Ftrl",
        {"learning_rate_power": -0.7, "initial_accumulator_value": 0.5, "weight_decay": 0.01},
        {},
    ),
    (
        "ftrl",
        "Ftrl",
        {"l1": 0.05, "l2": 0.02, "l2_shrinkage": 0.01, "beta": 0.1},
        {
            "l1_regularization_strength": 0.05,
            "l2_regularization_strength": 0.02,
            "l2_shrinkage_regularization_strength": 0.01,
            "beta": 0.1,
        },
    ),
]
SWITCHES = {"nesterov", "amsgrad", "centered"}


@pytest.mark.parametrize(
    ("name", "kind", "options", "keras_options"),
    CASES,
    ids=[f"{case[0]}-{','.join(case[2])}" for case in CASES],
)
def test_the_same_values_after_hundreds_of_steps(
    run: Any,
    assert_same_values: Callable[[Mapping[str, Array], Mapping[str, Array]], None],
    name: str,
    kind: str,
    options: dict[str, float],
    keras_options: dict[str, Any],
) -> None:
    given = keras_options or {
        key: bool(value) if key in SWITCHES else value for key, value in options.items()
    }
    optimizer = getattr(keras.optimizers, kind)(learning_rate=0.01, **given)
    variables = {parameter: tf.Variable(value, name=parameter) for parameter, value in run.initial.items()}
    if not keras.__version__.startswith("2."):
        variables = {
            parameter: keras.Variable(value, name=parameter) for parameter, value in run.initial.items()
        }
    optimizer.build(list(variables.values()))

    steps = list(run.steps())
    learning_rates = tf.constant([learning_rate for _, learning_rate, _ in steps], tf.float32)
    gradients = [tf.stack([step[2][parameter] for step in steps]) for parameter in variables]

    def train() -> None:
        for step in tf.range(len(steps)):
            optimizer.learning_rate.assign(learning_rates[step])
            optimizer.apply_gradients(
                [(g[step], v) for g, v in zip(gradients, variables.values(), strict=True)]
            )

    # Nadam of tf.keras 2.15 keeps a counter in Python, so that in a graph its product of momenta shrinks once
    # for every variable instead of once a step; run eagerly it is right, and the same as in Keras 3.
    if name == "nadam":
        train()
    else:
        tf.function(train)()
    theirs = {parameter: np.asarray(variable.numpy()) for parameter, variable in variables.items()}
    assert_same_values(run.ours(name, "keras", options), theirs)


def test_defaults_are_those_of_keras() -> None:
    called = {
        "l1": "l1_regularization_strength",
        "l2": "l2_regularization_strength",
        "l2_shrinkage": "l2_shrinkage_regularization_strength",
    }
    kinds = {name: kind for name, kind, _, _ in CASES}
    assert kinds.keys() == RULES["keras"].keys()
    for name, rule in RULES["keras"].items():
        config = getattr(keras.optimizers, kinds[name])().get_config()
        theirs = {option: float(config[called.get(option, option)] or 0) for option in rule.defaults}
        assert theirs == dict(rule.defaults), name
