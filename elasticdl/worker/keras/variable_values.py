"""Names and values of Keras variables that are the same in every process.

Keras counts the layers that a process has made: the second Dense is dense_1, whichever model it belongs to. A worker
that built another model before, or built this one twice, would have different names. The order in which a model lists
its variables never differs, so a stable name contains the variable's index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.worker.trainer import check_same_names

_COUNTER = re.compile(r"_\d+(?=_|$)")

Array = NDArray[Any]


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
        raise misfit(f"{what} does not fit this model", shapes, values)
    for name, variable in variables.items():
        variable.assign(np.asarray(values[name]).astype(tf.as_dtype(variable.dtype).as_numpy_dtype))


def misfit(what: str, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, Array]) -> UserError:
    expected = {name: np.broadcast_to(np.zeros(()), shape) for name, shape in shapes.items()}
    problems = check_same_names(expected, given)
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return UserError(
        f"{what}: {'; '.join(problems[:5])}{more}.",
        hint="A checkpoint can only be loaded into the model that it was taken of.",
    )
