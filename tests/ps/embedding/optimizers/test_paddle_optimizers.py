"""Our optimizers are numerically those of Paddle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import pytest

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import RULES, make_optimizer
from elasticdl.wire import ps_pb2

CASES: list[tuple[str, dict[str, float]]] = [
    ("sgd", {}),
    ("sgd", {"weight_decay": 0.1}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "nesterov": 1, "weight_decay": 0.01}),
    ("adagrad", {}),
    ("adagrad", {"initial_accumulator_value": 0.5, "epsilon": 1e-3, "weight_decay": 0.1}),
    ("adam", {}),
    ("adam", {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4, "weight_decay": 0.02}),
    ("adamw", {}),
    ("adamw", {"weight_decay": 0.1, "beta_1": 0.8}),
    ("rmsprop", {}),
    ("rmsprop", {"rho": 0.8, "momentum": 0.9, "epsilon": 1e-3}),
    ("rmsprop", {"centered": 1, "weight_decay": 0.01, "epsilon": 1e-3}),
    ("rmsprop", {"centered": 1, "momentum": 0.5, "epsilon": 1e-3}),
    ("adadelta", {}),
    ("adadelta", {"rho": 0.8, "epsilon": 1e-4, "weight_decay": 0.01}),
    ("adamax", {}),
    ("adamax", {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3, "weight_decay": 0.01}),
]
KINDS = {
    "sgd": paddle.optimizer.SGD,
    "adagrad": paddle.optimizer.Adagrad,
    "adam": paddle.optimizer.Adam,
    "adamw": paddle.optimizer.AdamW,
    "rmsprop": paddle.optimizer.RMSProp,
    "adadelta": paddle.optimizer.Adadelta,
    "adamax": paddle.optimizer.Adamax,
}
NAMES = {"beta_1": "beta1", "beta_2": "beta2", "nesterov": "use_nesterov"}
SWITCHES = {"nesterov", "centered"}


def build(name: str, parameters: list[Any], options: Mapping[str, float]) -> Any:
    """Paddle's optimizer with the options as Paddle calls them."""
    given: dict[str, Any] = {
        NAMES.get(option, option): bool(value) if option in SWITCHES else float(value)
        for option, value in options.items()
    }
    kind = paddle.optimizer.Momentum if "momentum" in options and name == "sgd" else KINDS[name]
    return kind(learning_rate=0.01, parameters=parameters, **given)


def parameter_of(value: Array) -> Any:
    made = paddle.create_parameter(
        shape=list(value.shape) or [1],
        dtype="float32",
        default_initializer=paddle.nn.initializer.Assign(value.reshape(value.shape or (1,))),
    )
    return made


def set_gradient(parameter: Any, gradient: Array) -> None:
    parameter.clear_grad()
    (parameter * paddle.to_tensor(gradient.reshape(parameter.shape))).sum().backward()


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{case[0]}-{','.join(case[1])}" for case in CASES])
def test_the_same_values_after_hundreds_of_steps(
    run: Any,
    assert_same_values: Callable[[Mapping[str, Array], Mapping[str, Array]], None],
    name: str,
    options: dict[str, float],
) -> None:
    parameters = {parameter: parameter_of(value) for parameter, value in run.initial.items()}
    optimizer = build(name, list(parameters.values()), options)
    for _, learning_rate, gradients in run.steps():
        optimizer.set_lr(learning_rate)
        for parameter, gradient in gradients.items():
            set_gradient(parameters[parameter], gradient)
        optimizer.step()
    theirs = {
        name: parameter.numpy().reshape(run.initial[name].shape) for name, parameter in parameters.items()
    }
    assert_same_values(run.ours(name, "paddle", options), theirs)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamax", "adagrad"])
def test_a_parameter_without_a_gradient_waits_with_its_steps(name: str) -> None:
    options = {"momentum": 0.9} if name == "sgd" else {}
    parameter = parameter_of(np.ones(3, np.float32))
    theirs = build(name, [parameter], options)
    ours = make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor="paddle", options=options))
    value = np.ones(3, np.float32)
    slots = ours.slots("x", value)
    for step in range(1, 21):
        parameter.clear_gradient(False)
        if step % 3 == 0:
            set_gradient(parameter, np.full(3, step, np.float32))
            ours.apply("x", value, np.full(3, step, np.float32), slots, 0.01, step)
        theirs.step()
    np.testing.assert_allclose(value, parameter.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamax"])
def test_the_first_steps_round_powers_of_the_betas_as_paddle_does(name: str) -> None:
    """In float32, 1 - 0.999 is off by one part in 100,000."""
    parameter = parameter_of(np.zeros(4, np.float32))
    theirs = build(name, [parameter], {"epsilon": 1e-12})
    ours = make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor="paddle", options={"epsilon": 1e-12}))
    value = np.zeros(4, np.float32)
    slots = ours.slots("x", value)
    for step in range(1, 4):
        gradient = np.array([1.0, -2.0, 0.5, 3.0], np.float32) * step
        set_gradient(parameter, gradient)
        theirs.step()
        ours.apply("x", value, gradient, slots, 0.01, step)
        np.testing.assert_allclose(value, parameter.numpy(), rtol=3e-7)


def test_defaults_are_those_of_paddle() -> None:
    assert KINDS.keys() == RULES["paddle"].keys()
    for name, rule in RULES["paddle"].items():
        theirs = KINDS[name](learning_rate=0.1, parameters=[parameter_of(np.ones(1, np.float32))])
        called = {"beta_1": "beta1", "beta_2": "beta2"}
        found = {
            option: float(getattr(theirs, f"_{called.get(option, option)}", rule.defaults[option]) or 0.0)
            for option in rule.defaults
        }
        assert found == dict(rule.defaults), name
