"""The optimizers of the parameter servers, by the names and options that a worker sends.

A parameter server never imports a framework, yet must do exactly what the framework's optimizer would have
done. So each is there in the form of each framework that has it (`flavor`: Keras, PyTorch, Paddle), and tested for
equality with it. The rules themselves are compiled (native/rules.h), and the same for whole parameters as for rows of
tables. The learning rate is not an option: it comes with every push, after the worker's schedules and
callbacks.

Options, where the optimizer has them; switches are 0 or 1:

    momentum, nesterov, dampening                sgd (dampening: torch); momentum also of rmsprop
    beta_1, beta_2                               adam, adamw, adamax, nadam (nadam: keras, torch)
    amsgrad                                      adam, adamw (keras, torch)
    rho                                          rmsprop (torch calls it alpha), adadelta
    centered                                     rmsprop
    epsilon                                      all but sgd and ftrl (torch calls it eps)
    initial_accumulator_value                    adagrad, ftrl
    lr_decay                                     adagrad (torch)
    momentum_decay                               nadam (torch)
    learning_rate_power, l1, l2, l2_shrinkage, beta     ftrl
    weight_decay                                 all: decoupled in keras, added to the gradient in torch and paddle
    decoupled_weight_decay                       adam, nadam (torch); adamw (torch, paddle)
    maximize                                     all (torch)

An option that is not given has the framework's own default.

An optimizer of the user's own (`custom_optimizer.py`) is of the flavor "python".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.ps import _kernels
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import PYTHON, CustomRule, of_config
from elasticdl.wire import ps_pb2

Slots = dict[str, Array]

# PyTorch and Paddle count the steps of every parameter; the count is kept with the slots.
STEP = "step"


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """The options of a rule, with the values they have if they are not given. Switches are 0 or 1."""

    defaults: Mapping[str, float]


def _keras(**options: float) -> RuleOptions:
    return RuleOptions(defaults={"weight_decay": 0.0, **options})


def _torch(**options: float) -> RuleOptions:
    return RuleOptions(defaults={"weight_decay": 0.0, "maximize": 0.0, **options})


def _paddle(**options: float) -> RuleOptions:
    return RuleOptions(defaults={"weight_decay": 0.0, **options})


RULES: dict[str, dict[str, RuleOptions]] = {
    "keras": {
        "sgd": _keras(momentum=0.0, nesterov=0.0),
        "adagrad": _keras(initial_accumulator_value=0.1, epsilon=1e-7),
        "adam": _keras(beta_1=0.9, beta_2=0.999, epsilon=1e-7, amsgrad=0.0),
        "adamw": _keras(beta_1=0.9, beta_2=0.999, epsilon=1e-7, amsgrad=0.0, weight_decay=0.004),
        "rmsprop": _keras(rho=0.9, momentum=0.0, epsilon=1e-7, centered=0.0),
        "adadelta": _keras(rho=0.95, epsilon=1e-7),
        "adamax": _keras(beta_1=0.9, beta_2=0.999, epsilon=1e-7),
        "nadam": _keras(beta_1=0.9, beta_2=0.999, epsilon=1e-7),
        "ftrl": _keras(
            learning_rate_power=-0.5,
            initial_accumulator_value=0.1,
            l1=0.0,
            l2=0.0,
            l2_shrinkage=0.0,
            beta=0.0,
        ),
    },
    "torch": {
        "sgd": _torch(momentum=0.0, dampening=0.0, nesterov=0.0),
        "adagrad": _torch(lr_decay=0.0, initial_accumulator_value=0.0, epsilon=1e-10),
        "adam": _torch(beta_1=0.9, beta_2=0.999, epsilon=1e-8, amsgrad=0.0, decoupled_weight_decay=0.0),
        "adamw": _torch(
            beta_1=0.9,
            beta_2=0.999,
            epsilon=1e-8,
            amsgrad=0.0,
            weight_decay=0.01,
            decoupled_weight_decay=1.0,
        ),
        "rmsprop": _torch(rho=0.99, momentum=0.0, epsilon=1e-8, centered=0.0),
        "adadelta": _torch(rho=0.9, epsilon=1e-6),
        "adamax": _torch(beta_1=0.9, beta_2=0.999, epsilon=1e-8),
        "nadam": _torch(
            beta_1=0.9, beta_2=0.999, epsilon=1e-8, momentum_decay=0.004, decoupled_weight_decay=0.0
        ),
    },
    "paddle": {
        # Paddle's SGD and its Momentum, which has a default for momentum that SGD does not have.
        "sgd": _paddle(momentum=0.0, nesterov=0.0),
        "adagrad": _paddle(initial_accumulator_value=0.0, epsilon=1e-6),
        "adam": _paddle(beta_1=0.9, beta_2=0.999, epsilon=1e-8),
        "adamw": _paddle(
            beta_1=0.9, beta_2=0.999, epsilon=1e-8, weight_decay=0.01, decoupled_weight_decay=1.0
        ),
        "rmsprop": _paddle(rho=0.95, momentum=0.0, epsilon=1e-6, centered=0.0),
        "adadelta": _paddle(rho=0.95, epsilon=1e-6),
        "adamax": _paddle(beta_1=0.9, beta_2=0.999, epsilon=1e-8),
    },
}


class Optimizer:
    """A rule with its options, for whole parameters and (`rule`) for tables."""

    # If it is the user's own; then `rule` knows the slots and nothing else.
    custom: CustomRule | None = None

    def __init__(self, flavor: str, name: str, options: Mapping[str, float]) -> None:
        self.options = {**RULES[flavor][name].defaults, **options}
        self.rule = _kernels.Rule(flavor, name, self.options)
        self._counts = flavor in ("torch", "paddle")
        self._names = self.rule.slot_names

    def slots(self, name: str, value: Array) -> Slots:
        """The arrays this optimizer remembers for a parameter, as they are before the first update."""
        initial = zip(self._names, self.rule.slot_initial, strict=True)
        slots: Slots = {slot: np.full_like(value, fill) for slot, fill in initial}
        if self._counts:
            slots[STEP] = np.zeros((), np.int64)
        return slots

    def apply(
        self, name: str, value: Array, grad: Array, slots: Slots, learning_rate: float, step: int
    ) -> None:
        """Updates a parameter and its slots in place. The first step is 1.

        All arrays are in C order and of one shape; the gradient is only read.
        """
        if value.dtype.kind != "f":
            raise ValueError(
                f"{name} is of {value.dtype.name}; only floating-point parameters can be trained"
            )
        if self._counts:
            slots[STEP] += 1
            step = int(slots[STEP])
        gradient = grad.astype(value.dtype, order="C", copy=False)
        self._update(name, value, gradient, slots, learning_rate, step)

    def _update(
        self, name: str, value: Array, gradient: Array, slots: Slots, learning_rate: float, step: int
    ) -> None:
        self.rule.apply(value, gradient, [slots[slot] for slot in self._names], learning_rate, step)


class CustomOptimizer(Optimizer):
    """A user's own optimizer. Parameters and rows count their steps, as PyTorch's do."""

    def __init__(self, custom: CustomRule) -> None:
        if STEP in custom.slots:
            raise UserError(f"The optimizer {custom.name} has a slot {STEP!r}, which is given to it anyway.")
        self.options = {}
        self.custom: CustomRule = custom
        self.rule = _kernels.Rule(list(custom.slots), list(custom.slots.values()))
        self._counts = True
        self._names = self.rule.slot_names

    def _update(
        self, name: str, value: Array, gradient: Array, slots: Slots, learning_rate: float, step: int
    ) -> None:
        # The gradient may be on its way to another server at this moment, and users' code may change what it is given.
        mine = {slot: slots[slot] for slot in self._names}
        new, changed = self.custom.update(name, value, gradient.copy(), mine, learning_rate, step)
        np.copyto(value, new, casting="same_kind")
        for slot, array in changed.items():
            np.copyto(slots[slot], array, casting="same_kind")


def make_optimizer(config: ps_pb2.OptimizerConfig, *, model_zoo: str = "") -> Optimizer:
    """The optimizer of that name, flavor and options; `UserError` if there is none.

    `model_zoo`: the folder where those of the user's own are.
    """
    if config.flavor == PYTHON:
        return CustomOptimizer(CustomRule(of_config(config, model_zoo)))
    rules = RULES.get(config.flavor)
    if rules is None:
        raise UserError(
            f"Unknown optimizer flavor {config.flavor!r}.{did_you_mean(config.flavor, RULES)}",
            hint=f"Known are: {', '.join(RULES)}.",
        )
    rule = rules.get(config.name.lower())
    if rule is None:
        raise UserError(
            f"The parameter servers have no optimizer {config.name!r} for {config.flavor}."
            f"{did_you_mean(config.name, rules)}",
            hint=f"They have: {', '.join(rules)}.",
        )
    for option, value in config.options.items():
        if option not in rule.defaults:
            raise UserError(
                f"The optimizer {config.name} of the parameter servers has no option {option!r} for "
                f"{config.flavor}.{did_you_mean(option, rule.defaults)}",
                hint=f"It has: {', '.join(sorted(rule.defaults))}.",
            )
        if not math.isfinite(value):
            raise UserError(
                f"The option {option} of the optimizer {config.name} is {value}, which is no number."
            )
    return Optimizer(config.flavor, config.name.lower(), config.options)
