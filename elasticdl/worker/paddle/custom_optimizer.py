"""An optimizer of the user's own (`elasticdl.Optimizer`) as one of Paddle's: for schedules, callbacks and checkpoints,
and to train with where there are no parameter servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import paddle

from elasticdl.errors import UserError
from elasticdl.ps.embedding.custom_optimizer import CustomRule, Optimizer
from elasticdl.worker.paddle.tensors import copy_into, dense, gradient_of, to_array

_STEP = "step"


class CustomOptimizer(paddle.optimizer.Optimizer):  # type: ignore[misc]
    """`learning_rate` of the user's optimizer is a number or a schedule of paddle.optimizer.lr."""

    def __init__(self, parameters: Sequence[Any], optimizer: Optimizer) -> None:
        rate = optimizer.learning_rate
        if not isinstance(rate, (int, float, paddle.optimizer.lr.LRScheduler)):
            raise UserError(
                f"The learning rate of {type(optimizer).__name__} is {rate!r}, and no number.",
                hint="Give a number or a schedule of paddle.optimizer.lr.",
            )
        self.custom = optimizer
        self._rule = CustomRule(optimizer)
        super().__init__(float(rate) if isinstance(rate, int) else rate, parameters=parameters)

    @paddle.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        rate = float(self.get_lr())
        for parameter in self._parameter_list:
            gradient = gradient_of(parameter)
            if gradient is not None:
                self._update(parameter, dense(gradient), rate)

    def create_slots(self, parameters: Iterable[str]) -> None:
        """Makes those that these parameters have before their first step."""
        known = set(parameters)
        for parameter in self._parameter_list:
            if parameter.name in known:
                self._accumulators[_STEP][parameter.name] = paddle.zeros([1], "int64")
                for slot, initial in self._rule.slots.items():
                    self._accumulators[slot][parameter.name] = paddle.full_like(parameter, initial)

    def _update(self, parameter: Any, gradient: Any, rate: float) -> None:
        name = parameter.name
        if name not in self._accumulators[_STEP]:
            self.create_slots([name])
        step = int(self._accumulators[_STEP][name]) + 1
        value, slots = self._rule.update(
            f"a parameter of shape {list(parameter.shape)}",
            to_array(parameter),
            gradient,
            {slot: to_array(self._accumulators[slot][name]) for slot in self._rule.slots},
            rate,
            step,
        )
        copy_into(self._accumulators[_STEP][name], np.array([step]))
        copy_into(parameter, np.asarray(value))
        for slot, array in slots.items():
            copy_into(self._accumulators[slot][name], np.asarray(array))


def as_paddle(optimizer: Optimizer, parameters: Sequence[Any]) -> CustomOptimizer:
    # Checkpoints and messages tell of an optimizer by the name of its class.
    kind = type(type(optimizer).__name__, (CustomOptimizer,), {})
    made: CustomOptimizer = kind(parameters, optimizer)
    return made
