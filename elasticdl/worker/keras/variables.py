"""A model's variables by names that are the same in every process.

Keras counts the layers that a process has made: the second Dense is dense_1, in whichever model it is. A worker
that built another model before, or built this one twice, would have other names than its neighbour. What never
differs is the order in which a model lists its variables, so that goes into the name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.keras import table_layers
from elasticdl.worker.trainer import Parameters, check_same_names

Array = NDArray[Any]

_COUNTER = re.compile(r"_\d+(?=_|$)")


class ModelVariables:
    """The variables of a built model: those that are trained, and other numbers that belong to it."""

    def __init__(self, model: Any, *, without: Collection[int] = ()) -> None:
        """`without` those of these ids: they are elsewhere."""
        # Of a layer whose rows are in a table nothing but a handle is here, which nobody has to know.
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
            raise _misfit("These are not the parameters of this model", self._shapes, given)
        if self._assign is None:
            self._assign = _assignment([*self.trainable.values(), *self.state.values()])
        self._assign(*(tf.convert_to_tensor(given[name]) for name in self._shapes))


def stable_names(variables: Iterable[Any]) -> list[str]:
    """Number, layer and name: "3:dense/bias"."""
    names = []
    for index, variable in enumerate(variables):
        path = getattr(variable, "path", None) or variable.name
        parts = [_COUNTER.sub("", part) for part in path.partition(":")[0].split("/")]
        names.append(f"{index}:{'/'.join(parts[-2:])}")
    return names


def read(variable: Any) -> Array:
    """A copy: what NumPy gets from a variable may be the variable's own memory."""
    return np.array(variable.numpy())


def write_all(variables: Mapping[str, Any], values: Mapping[str, Array], *, what: str) -> None:
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    if {name: np.shape(value) for name, value in values.items()} != shapes:
        raise _misfit(f"{what} does not fit this model", shapes, values)
    for name, variable in variables.items():
        variable.assign(np.asarray(values[name]).astype(tf.as_dtype(variable.dtype).as_numpy_dtype))


def _misfit(what: str, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, Array]) -> UserError:
    expected = {name: np.broadcast_to(np.zeros(()), shape) for name, shape in shapes.items()}
    problems = check_same_names(expected, given)
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return UserError(
        f"{what}: {'; '.join(problems[:5])}{more}.",
        hint="A checkpoint can only be loaded into the model that it was taken of.",
    )


def _assignment(variables: Sequence[Any]) -> Any:
    """One call for all variables: a call a variable takes longer than a step of a small model."""
    specs = [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]

    def assign(*values: Any) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    return tf.function(assign, autograph=False, input_signature=specs).get_concrete_function()


def _is_float(variable: Any) -> bool:
    return bool(tf.as_dtype(variable.dtype).is_floating)
