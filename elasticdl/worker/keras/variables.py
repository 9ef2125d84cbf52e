"""The variables of a Keras model: trained parameters and state, read and written as NumPy arrays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.keras import table_layers
from elasticdl.worker.keras.variable_values import misfit, read, stable_names
from elasticdl.worker.trainer import Parameters

Array = NDArray[Any]


class ModelVariables:
    """The variables of a built model: those that are trained, and other numbers that belong to it."""

    def __init__(self, model: Any, *, without: Collection[int] = ()) -> None:
        """`without` those of these ids: they are elsewhere."""
        # A layer whose rows are in a table has only a handle here, which is internal.
        handles = {id(layer.handle) for _, layer in table_layers(model)}
        trainable = [one for one in model.trainable_weights if id(one) not in handles]
        taken = {id(variable) for variable in trainable} | handles
        # Seeds and counters are whole numbers, and a process's own affair.
        state = [one for one in model.non_trainable_weights if id(one) not in taken and _is_float(one)]
        # Others are called the same whether some are elsewhere or not.
        names = stable_names([*trainable, *state])
        pairs = zip(names, trainable, strict=False)
        self.trainable = {name: one for name, one in pairs if id(one) not in without}
        self.state = dict(zip(names[len(trainable) :], state, strict=True))
        self._shapes = {
            name: tuple(one.shape) for name, one in [*self.trainable.items(), *self.state.items()]
        }
        self._assign: Any = None

    def read(self) -> Parameters:
        return Parameters(
            trainable={name: read(variable) for name, variable in self.trainable.items()},
            state=self.read_state(),
        )

    def read_state(self) -> dict[str, Array]:
        return {name: read(variable) for name, variable in self.state.items()}

    def write(self, parameters: Parameters) -> None:
        given = {**parameters.trainable, **parameters.state}
        if {name: value.shape for name, value in given.items()} != self._shapes:
            raise misfit("These are not the parameters of this model", self._shapes, given)
        if self._assign is None:
            self._assign = _assignment([*self.trainable.values(), *self.state.values()])
        self._assign(*(tf.convert_to_tensor(given[name]) for name in self._shapes))


def _assignment(variables: Sequence[Any]) -> Any:
    """Assigns all variables in one call: a call a variable takes longer than a step of a small model."""
    specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]

    def assign(*values: Any) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    return tf.function(assign, autograph=False, input_signature=specs).get_concrete_function()


def _is_float(variable: Any) -> bool:
    return bool(tf.as_dtype(variable.dtype).is_floating)
