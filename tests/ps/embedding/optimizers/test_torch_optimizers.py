"""Our optimizers are numerically those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import RULES, make_optimizer
from elasticdl.wire import ps_pb2

CASES: list[tuple[str, dict[str, float]]] = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "dampening": 0.3}),
    ("sgd", {"momentum": 0.9, "nesterov": 1, "weight_decay": 0.01}),
    ("sgd", {"weight_decay": 0.1}),
    ("sgd", {"maximize": 1, "momentum": 0.5, "weight_decay": 0.01}),
    ("adagrad", {}),
    ("adagrad", {"lr_decay": 0.01, "initial_accumulator_value": 0.5, "epsilon": 1e-3, "weight_decay": 0.1}),
    ("adam", {}),
    ("adam", {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4}),
    ("adam", {"amsgrad": 1, "weight_decay": 0.02}),
    ("adam", {"decoupled_weight_decay": 1, "weight_decay": 0.02, "maximize": 1}),
    ("adamw", {}),
    ("adamw", {"amsgrad": 1, "weight_decay": 0.1}),
    ("rmsprop", {}),
    ("rmsprop", {"rho": 0.8, "momentum": 0.9, "epsilon": 1e-3}),
    ("rmsprop", {"centered": 1, "weight_decay": 0.01}),
    ("rmsprop", {"centered": 1, "momentum": 0.5}),
    ("adadelta", {}),
    ("adadelta", {"rho": 0.8, "epsilon": 1e-4, "weight_decay": 0.01}),
    ("adamax", {}),
    ("adamax", {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3, "weight_decay": 0.01}),
    ("nadam", {}),
    ("nadam", {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3, "momentum_decay": 0.1, "weight_decay": 0.01}),
    ("nadam", {"weight_decay": 0.1, "decoupled_weight_decay": 1}),
]
KINDS = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
}
SWITCHES = {"nesterov", "amsgrad", "centered", "maximize", "decoupled_weight_decay"}


def build(
    name: str, parameters: list[torch.nn.Parameter], options: Mapping[str, float]
) -> torch.optim.Optimizer:
    """PyTorch's optimizer with the options as PyTorch calls them."""
    given: dict[str, Any] = {}
    for option, value in options.items():
        if option in ("beta_1", "beta_2"):
            given["betas"] = (options.get("beta_1", 0.9), options.get("beta_2", 0.999))
        else:
            called = {"epsilon": "eps", "rho": "alpha" if name == "rmsprop" else "rho"}.get(option, option)
            given[called] = bool(value) if option in SWITCHES else value
    # AdamW takes no such option: it is what makes it AdamW.
    return KINDS[name](parameters, lr=0.01, **given)


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{case[0]}-{','.join(case[1])}" for case in CASES])
def test_the_same_values_after_hundreds_of_steps(
    run: Any,
    assert_same_values: Callable[[Mapping[str, Array], Mapping[str, Array]], None],
    name: str,
    options: dict[str, float],
) -> None:
    parameters = {
        parameter: torch.nn.Parameter(torch.tensor(value)) for parameter, value in run.initial.items()
    }
    optimizer = build(name, list(parameters.values()), options)
    for _, learning_rate, gradients in run.steps():
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        for parameter, gradient in gradients.items():
            parameters[parameter].grad = torch.tensor(gradient)
        optimizer.step()
    theirs = {name: parameter.detach().numpy() for name, parameter in parameters.items()}
    assert_same_values(run.ours(name, "torch", options), theirs)


@pytest.mark.parametrize("name", ["sgd", "adam", "nadam", "adagrad"])
def test_a_parameter_without_a_gradient_waits_with_its_steps(name: str) -> None:
    options = {"momentum": 0.9, "dampening": 0.5} if name == "sgd" else {}
    parameter = torch.nn.Parameter(torch.ones(3))
    theirs = build(name, [parameter], options)
    ours = make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor="torch", options=options))
    value = np.ones(3, np.float32)
    slots = ours.slots("x", value)
    for step in range(1, 21):
        parameter.grad = None
        if step % 3 == 0:
            parameter.grad = torch.full((3,), float(step))
            ours.apply("x", value, np.full(3, step, np.float32), slots, 0.01, step)
        theirs.step()
    np.testing.assert_allclose(value, parameter.detach().numpy(), rtol=1e-6)


def test_defaults_are_those_of_pytorch() -> None:
    assert KINDS.keys() == RULES["torch"].keys()
    for name, rule in RULES["torch"].items():
        theirs = dict(KINDS[name]([torch.nn.Parameter(torch.ones(1))]).defaults)
        if "betas" in theirs:
            theirs["beta_1"], theirs["beta_2"] = theirs["betas"]
        called = {"epsilon": "eps", "rho": "alpha" if name == "rmsprop" else "rho"}
        found = {option: float(theirs[called.get(option, option)]) for option in rule.defaults}
        assert found == dict(rule.defaults), name
