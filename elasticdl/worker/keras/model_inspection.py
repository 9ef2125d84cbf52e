"""Inspects a Keras model before it is computed: its backend, and whether its variables exist."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from elasticdl.errors import UserError


def check_backend(model: Any) -> None:
    """Raises `UserError` for a model that another backend than TensorFlow computes."""
    for base in type(model).__mro__:
        keras = sys.modules.get(base.__module__.partition(".")[0])
        if base.__name__ == "Model" and keras is not None and hasattr(keras, "backend"):
            backend = keras.backend.backend()
            if backend != "tensorflow":
                raise UserError(
                    f"This is a Keras model on {backend}; ElasticDL trains Keras models on TensorFlow.",
                    hint="Set KERAS_BACKEND=tensorflow.",
                )
            return


def has_variables(model: Any) -> bool:
    """A model made of layers with a given input has all its variables; others make them when first called."""
    kinds = {base.__name__ for base in type(model).__mro__}
    return bool(model.built) if "Sequential" in kinds else "Functional" in kinds


def first_samples(count: int, structure: Any) -> Any:
    """Returns the first samples of a batch, in the structure of its features or labels."""

    def first(tensor: Any) -> Any:
        if isinstance(tensor, tf.SparseTensor):
            shape = tensor.dense_shape
            return tf.sparse.slice(tensor, tf.zeros_like(shape), tf.concat([[count], shape[1:]], axis=0))
        return None if tensor is None else tensor[:count]

    return tf.nest.map_structure(first, structure)


def numeric_features(features: Any) -> list[Any]:
    """Returns the numbers among features as arrays, in a fixed order."""
    found = []
    for one in tf.nest.flatten(features):
        if isinstance(one, tf.RaggedTensor):
            one = one.flat_values
        elif isinstance(one, tf.SparseTensor):
            one = one.values
        if tf.is_tensor(one) and (one.dtype.is_integer or one.dtype.is_floating):
            found.append(one.numpy())
    return found
