"""Large embeddings of Keras, moved to the parameter servers and back: see `embedding_offload.py`.

The layer stays in its model, whatever kind of model that is, and looks its rows up elsewhere: by a layer of ours inside
of it. Its variable stays too, since a model's variables are known by their order, with next to nothing in it; when the
model is exported, it is filled again, and the layer is what it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.keras import MOVED, Embedding, as_table_initializer
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.model.embedding_offload import OffloadReport, Size, has_drawn_values

# Rows of an embedding that is made ordinary again, looked up at a time.
_AT_ONCE = 1 << 18


class MovedEmbedding:
    """A layer of Keras whose rows are in a table."""

    def __init__(
        self,
        layer: Any,
        *,
        size: Size,
        table: str,
        initializer: Initializer,
        is_training: Callable[[], bool],
    ) -> None:
        self.layer = layer
        self.size = size
        self.variable = _variable_of(layer)
        self.inside = Embedding(layer.output_dim, table=table, initializer=initializer, dtype="float32")
        self.inside.build(None)
        self._is_training = is_training
        self._table = table
        self.empty()

    def empty(self) -> None:
        """The layer looks elsewhere, and its variable takes no memory."""
        # Not as attributes, which Keras would look through for what belongs to the model.
        vars(self.layer)["call"] = self._call
        vars(self.layer)[MOVED] = self.inside
        _assign(self.variable, tf.zeros((1, 1)))

    def fill(self, tables: LocalTables) -> None:
        """The layer is what it was."""
        rows = self.layer.input_dim
        parts = [
            tables.pull_rows({self._table: np.arange(first, min(first + _AT_ONCE, rows))}, create=False)
            for first in range(0, rows, _AT_ONCE)
        ]
        _assign(self.variable, tf.constant(np.concatenate([part[self._table] for part in parts])))
        for name in ("call", MOVED):
            vars(self.layer).pop(name, None)

    def _call(self, inputs: Any) -> Any:
        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(self._call(inputs.flat_values))
        if isinstance(inputs, tf.SparseTensor):
            # As Keras does: what is not there is the id 0.
            inputs = tf.sparse.to_dense(inputs)
        ids = tf.cast(tf.convert_to_tensor(inputs), tf.int64)
        checks = [
            tf.debugging.assert_non_negative(ids),
            tf.debugging.assert_less(
                ids, tf.constant(self.layer.input_dim, tf.int64), f"{self._table} has no such row"
            ),
        ]
        # Keras does not know of it, and freezes only the layer.
        self.inside.trainable = self.layer.trainable
        # Where nothing is computed by a graph, they have been made already, and are nothing.
        with tf.control_dependencies([check for check in checks if check is not None]):
            rows = self.inside.call(tf.identity(ids), training=self._is_training())
        return tf.cast(rows, self.layer.compute_dtype)


def move_large(
    model: Any, names: dict[int, str], *, at_least: int, is_training: Callable[[], bool]
) -> tuple[list[MovedEmbedding], list[str]]:
    """Moves the embeddings of a built model with at least so many bytes. Returns them, and remarks for the user.
    `names` of its variables, by their ids.
    """
    moved: list[MovedEmbedding] = []
    report = OffloadReport()
    for layer in model._flatten_layers():
        if type(layer) is not tf.keras.layers.Embedding or not layer.built:
            continue
        variable = _variable_of(layer)
        size = Size(name=layer.name, rows=layer.input_dim, width=layer.output_dim)
        if size.rows * size.width * 4 < at_least:
            continue
        initializer, why = (
            _initializer_of(layer, variable) if id(variable) in names else (None, "it is not trained")
        )
        if initializer is None:
            report.left(size, why)
            continue
        moved.append(
            MovedEmbedding(
                layer, size=size, table=names[id(variable)], initializer=initializer, is_training=is_training
            )
        )
        report.moved(size)
    return moved, report.remarks()


@contextlib.contextmanager
def moved_back(moved: list[MovedEmbedding], tables: LocalTables | None) -> Iterator[None]:
    """Makes moved layers ordinary ones inside of this context."""
    assert not moved or tables is not None
    for each in moved:
        each.fill(tables)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for each in moved:
            each.empty()


def check_read(moved: Iterable[MovedEmbedding], read: Iterable[Any]) -> None:
    """`read`: the variables that a loss is computed with. Raises `UserError` if one that was moved is among them, for
    there is nothing in it.
    """
    handles = {id(variable.handle) for variable in read}
    names = [each.size.name for each in moved if id(_native(each.variable).handle) in handles]
    if names:
        raise UserError(
            f"The model uses the values of the embedding {', '.join(names)} in other ways than by looking rows up, and "
            "they were moved to the parameter servers.",
            hint="Omit --move_embeddings_mib, or raise it above the size of this embedding.",
        )


def _initializer_of(layer: Any, variable: Any) -> tuple[Initializer | None, str]:
    """Returns the layer's own initializer; or why a table cannot take its place."""
    if layer.mask_zero or layer.embeddings_regularizer or layer.embeddings_constraint:
        return None, "tables have no masks, regularizers or constraints"
    if getattr(layer, "sparse", False) or getattr(layer, "lora_enabled", False):
        return None, "tables have neither sparse gradients of Keras nor LoRA"
    if np.ndim(getattr(layer.embeddings_initializer, "value", 0.0)):
        return None, "its initializer is a matrix of given values"
    try:
        wanted = as_table_initializer(
            layer.embeddings_initializer, rows=layer.input_dim, width=layer.output_dim
        )
    except UserError as error:
        return None, error.message.rstrip(".").lower()
    if not has_drawn_values(wanted, variable.numpy()):
        return None, "its values were set, and are not what its initializer draws"
    return wanted, ""


def _variable_of(layer: Any) -> Any:
    """Keras 3 has it under another name."""
    return layer._embeddings if hasattr(layer, "_embeddings") else layer.embeddings


def _assign(variable: Any, value: Any) -> None:
    """Assigns a value without checking its shape."""
    tf.raw_ops.AssignVariableOp(resource=_native(variable).handle, value=value, validate_shape=False)


def _native(variable: Any) -> Any:
    return variable if isinstance(variable, tf.Variable) else variable.value
