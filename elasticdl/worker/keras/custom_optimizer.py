"""An optimizer of the user's own (`elasticdl.Optimizer`) with the face of a Keras optimizer, of any version: for
callbacks, schedules and checkpoints, and to train with where there are no parameter servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.ps.embedding.custom_optimizer import CustomRule, Optimizer


class CustomOptimizer:
    def __init__(self, optimizer: Optimizer) -> None:
        self.custom = optimizer
        self._rule = CustomRule(optimizer)
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False, name="iterations")
        rate = optimizer.learning_rate
        # A schedule stays what it is.
        self._learning_rate = (
            rate
            if callable(rate)
            else tf.Variable(rate, dtype=tf.float32, trainable=False, name="learning_rate")
        )
        self._slots: dict[int, dict[str, Any]] = {}

    @property
    def learning_rate(self) -> Any:
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        if callable(self._learning_rate) or callable(rate):
            self._learning_rate = rate
        else:
            self._learning_rate.assign(rate)

    lr = learning_rate

    @property
    def variables(self) -> list[Any]:
        slots = [slot for slots in self._slots.values() for slot in slots.values()]
        return [self.iterations, *slots]

    def build(self, variables: Sequence[Any]) -> None:
        for number, variable in enumerate(variables):
            self._slots[id(variable)] = {
                slot: tf.Variable(
                    tf.fill(variable.shape, tf.constant(initial, variable.dtype)),
                    trainable=False,
                    name=f"{number}_{slot}",
                )
                for slot, initial in self._rule.slots.items()
            }

    def get_config(self) -> dict[str, Any]:
        return {"name": type(self.custom).__name__}

    def apply_gradients(self, gradients_and_variables: Iterable[tuple[Any, Any]]) -> None:
        """Applies gradients, in a graph or out of one."""
        self.iterations.assign_add(1)
        rate = (
            self._learning_rate(self.iterations - 1) if callable(self._learning_rate) else self._learning_rate
        )
        for gradient, variable in gradients_and_variables:
            if gradient is not None:
                self._apply(tf.convert_to_tensor(gradient), variable, tf.cast(rate, tf.float64))

    def _apply(self, gradient: Any, variable: Any, rate: Any) -> None:
        slots = self._slots[id(variable)]
        name = str(getattr(variable, "path", variable.name)).partition(":")[0]

        def update(value: Any, given: Any, learning_rate: Any, step: Any, *held: Any) -> Any:
            new, changed = self._rule.update(
                name,
                np.array(value),
                np.array(given),
                {slot: np.array(array) for slot, array in zip(slots, held, strict=True)},
                float(learning_rate),
                int(step),
            )
            return [np.asarray(array, value.dtype) for array in (new, *changed.values())]

        targets = [variable, *slots.values()]
        new = tf.numpy_function(
            update,
            [tf.convert_to_tensor(variable), gradient, rate, self.iterations, *slots.values()],
            [target.dtype for target in targets],
        )
        shaped = [tf.ensure_shape(value, target.shape) for target, value in zip(targets, new, strict=True)]
        constraint = getattr(variable, "constraint", None)
        if constraint is not None:
            shaped[0] = constraint(shaped[0])
        for target, value in zip(targets, shaped, strict=True):
            target.assign(value)
