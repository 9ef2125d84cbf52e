"""The optimizers of the parameter servers, by the names and options that a worker sends.

A parameter server never imports a framework, yet must do exactly what the framework's optimizer would have
done. So each is here twice, in Keras's form and in PyTorch's (`flavor`), and tested against both for
equality. The learning rate is not an option: it comes with every push, after the worker's schedules and
callbacks.

Options, where the optimizer has them; switches are 0 or 1:

    momentum, nesterov, dampening                sgd (dampening: torch); momentum also of rmsprop
    beta_1, beta_2                               adam, adamw, adamax, nadam
    amsgrad                                      adam, adamw
    rho                                          rmsprop (torch calls it alpha), adadelta
    centered                                     rmsprop
    epsilon                                      all but sgd and ftrl (torch calls it eps)
    initial_accumulator_value                    adagrad, ftrl
    lr_decay                                     adagrad (torch)
    momentum_decay                               nadam (torch)
    learning_rate_power, l1, l2, l2_shrinkage, beta     ftrl
    weight_decay                                 all: decoupled in keras, added to the gradient in torch
    decoupled_weight_decay                       adam, nadam (torch)
    maximize                                     all (torch)

An option that is not given has the framework's own default.
"""

from __future__ import annotations

import math

from elasticdl.jobs.errors import UserError
from elasticdl.jobs.nearest import did_you_mean
from elasticdl.ps import keras_updates, torch_updates
from elasticdl.ps.update import Optimizer
from elasticdl.wire import ps_pb2

RULES = {"keras": keras_updates.RULES, "torch": torch_updates.RULES}

__all__ = ["RULES", "Optimizer", "make_optimizer"]


def make_optimizer(config: ps_pb2.OptimizerConfig) -> Optimizer:
    """The optimizer of that name, flavor and options; `UserError` if there is none."""
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
    return rule(config.options)
