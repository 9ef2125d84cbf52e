"""An embedding for Keras whose rows are keyed by any int64 id, and made when they are first seen.

    rows = elasticdl.keras.Embedding(16)(ids)                          # (batch, 26) -> (batch, 26, 16)
    rows = elasticdl.keras.Embedding(16, combiner="mean")(ids)         # (batch, 26) -> (batch, 16)

There is no number of rows to choose and no vocabulary to keep: ids may be hashes. In a job the rows are on the
parameter servers, or, with one worker alone, in that worker; the definition's optimizer trains them. Anywhere else, as
in a notebook, a layer has its rows to itself:

    model.compile(optimizer="adagrad", loss="mse")
    elasticdl.keras.attach(model)                                      # the rows are trained by the model's optimizer
    model.fit(...)

A layer may be used several times in a model. Several layers use one table if each is given the same `table`.

Rows are made while training only. Otherwise an id that was never trained has the values that its row would start with.
Those of a layer that is frozen (`layer.trainable = False`) stay as they are.
It is for tf.keras of TensorFlow 2.15 and for Keras 3 on TensorFlow.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.data.feeds import batched
from elasticdl.errors import UserError
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.lookups import Declaration, Lookups, as_initializer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec, as_ids
from elasticdl.ps.embedding.unique_ids import sum_by

__all__ = ["Embedding", "attach", "batched", "table_layers"]

log = logging.getLogger("elasticdl.keras")

# Where an ordinary layer has one of ours inside of it, because it was moved to parameter servers.
MOVED = "_elasticdl_moved"

# Recent errors of lookups. TensorFlow wraps an error into one of its own that keeps only the
# text; callers that handle it, such as servers restored from a checkpoint, need the original.
failures: deque[Exception] = deque(maxlen=1)

_COMBINERS = (None, "sum", "mean", "sqrtn")
# Keras's initializers, with the names that their options have for tables.
_INITIALIZERS: dict[str, tuple[str, dict[str, str]]] = {
    "RandomUniform": ("uniform", {"minval": "low", "maxval": "high"}),
    "RandomNormal": ("normal", {"mean": "mean", "stddev": "stddev"}),
    "TruncatedNormal": ("truncated_normal", {"mean": "mean", "stddev": "stddev"}),
    "Constant": ("constant", {"value": "value"}),
    "Zeros": ("zeros", {}),
    "GlorotUniform": ("glorot_uniform", {}),
    "GlorotNormal": ("glorot_normal", {}),
}


@tf.keras.utils.register_keras_serializable(package="elasticdl")
class Embedding(tf.keras.layers.Layer):  # type: ignore[misc]
    """A row for each id; with a combiner, one for all ids of a sample: their sum, their mean, or their sum by the root
    of their number. With weights, w: the sum of w·row, by that of w ("mean"), or by the root of that of w² ("sqrtn").

    Ids are a tensor of whole numbers (with a combiner, those of its last axis are put together), a ragged tensor, or,
    with a combiner, a sparse one. A sample without ids has zeros. Weights have the form of the ids.
    """

    def __init__(
        self,
        output_dim: int,
        *,
        combiner: str | None = None,
        initializer: str | Mapping[str, Any] | Initializer | Any = "uniform",
        table: str = "",
        seed: int = 0,
        admit_after: int = 1,
        expire_after: int = 0,
        **options: Any,
    ) -> None:
        """`name`: of the layer and of its table; its place in the model if it is given none. `table`: of a table that
        other layers use too. `initializer`: what rows start as: Keras's, or see `elasticdl.ps.embedding.initializers`.
        `admit_after`: sightings of an id after which it gets a row of its own. `expire_after`: steps after which a row
        that was not seen is forgotten; 0: never.
        """
        super().__init__(**options)
        if combiner not in _COMBINERS:
            raise UserError(
                f"Embedding has no combiner {combiner!r}.", hint="It has: None, 'sum', 'mean', 'sqrtn'."
            )
        self.output_dim = output_dim
        self.combiner = combiner
        self.supports_jit = False
        self.declaration = Declaration(
            width=output_dim,
            name=options.get("name") or "",
            table=table,
            initializer=as_table_initializer(initializer),
            seed=seed,
            admit_after=admit_after,
            expire_after=expire_after,
        )
        self.declaration.spec("embedding")
        self._joined: tuple[str, Lookups] | None = None
        self._alone: _Alone | None = None
        self._table = "embedding"
        self.fixed: Any = None

    def join(self, table: str, lookups: Lookups | None) -> None:
        """Rows come from there from now on; with None, from the layer itself."""
        self._table = table
        self._joined = None if lookups is None else (table, lookups)

    def fix(self, rows: Any) -> None:
        """Rows are those of this function of ids, for an export, until it is None."""
        self.fixed = rows

    def build(self, input_shape: Any = None) -> None:
        # Gradients are computed for what a model lists as its variables: the way to those of the rows goes by this one,
        # which is zero and remains it.
        self.handle = self.add_weight(name="handle", shape=(), initializer="zeros", trainable=True)
        self.built = True

    def call(self, ids: Any, weights: Any = None, training: Any = None) -> Any:
        # Rows are float32, and made what the policy of the layer says, as Keras does with its own.
        return tf.cast(self._looked_up(ids, weights, training), self.compute_dtype)

    def _looked_up(self, ids: Any, weights: Any, training: Any) -> Any:
        if isinstance(ids, tf.SparseTensor):
            return self._sparse(ids, weights, training)
        if isinstance(ids, tf.RaggedTensor):
            return self._ragged(ids, weights, training)
        return self._dense(tf.convert_to_tensor(ids), weights, training)

    # -- the forms of ids ------------------------------------------------------------------------------------

    def _dense(self, ids: Any, weights: Any, training: Any) -> Any:
        rows = self._rows(tf.reshape(ids, [-1]), training)
        shape = tf.concat([tf.shape(ids), [self.output_dim]], axis=0)
        rows = tf.ensure_shape(tf.reshape(rows, shape), [*ids.shape, self.output_dim])
        if self.combiner is None:
            return rows if weights is None else rows * self._weights(weights)[..., tf.newaxis]
        if ids.shape.rank < 2:
            raise UserError(
                f"Embedding with a combiner is given ids of shape {list(ids.shape)}.",
                hint="The ids of a sample are those of the last axis: give a matrix, a ragged or a sparse tensor.",
            )
        if weights is None:
            number = tf.cast(tf.shape(ids)[-1], rows.dtype)
            return _shared(self.combiner, tf.reduce_sum(rows, axis=-2), number, number)
        given = self._weights(weights)
        sums = tf.reduce_sum(rows * given[..., tf.newaxis], axis=-2)
        total = tf.reduce_sum(given, axis=-1, keepdims=True)
        return _shared(self.combiner, sums, total, tf.reduce_sum(given * given, axis=-1, keepdims=True))

    def _ragged(self, ids: Any, weights: Any, training: Any) -> Any:
        flat = None if weights is None else self._weights(_flat_like(ids, weights))
        rows = self._rows(ids.flat_values, training)
        if self.combiner is None:
            return ids.with_flat_values(rows if flat is None else rows * flat[:, tf.newaxis])
        if ids.ragged_rank != 1 or ids.shape.rank != 2:
            raise UserError(
                f"Embedding with a combiner is given ragged ids of shape {list(ids.shape)}.",
                hint="It takes samples of any number of ids each: [batch, None].",
            )
        return self._combined(rows, ids.value_rowids(), ids.nrows(), flat)

    def _sparse(self, ids: Any, weights: Any, training: Any) -> Any:
        if self.combiner is None:
            raise UserError("Embedding is given sparse ids, and has no combiner.", hint="Give it a combiner.")
        flat = None if weights is None else self._weights(_values_like(ids, weights))
        rows = self._rows(ids.values, training)
        combined = self._combined(rows, ids.indices[:, 0], ids.dense_shape[0], flat)
        return tf.ensure_shape(combined, [ids.shape[0], self.output_dim])

    def _combined(self, rows: Any, samples: Any, number: Any, weights: Any) -> Any:
        ones = tf.ones([tf.shape(rows)[0]], rows.dtype) if weights is None else weights
        weighted = rows if weights is None else rows * weights[:, tf.newaxis]
        sums = tf.math.unsorted_segment_sum(weighted, samples, number)
        if self.combiner == "sum":
            return sums
        total = tf.math.unsorted_segment_sum(ones, samples, number)[:, tf.newaxis]
        squares = tf.math.unsorted_segment_sum(ones * ones, samples, number)[:, tf.newaxis]
        return _shared(self.combiner, sums, total, squares)

    def _weights(self, weights: Any) -> Any:
        return tf.cast(tf.convert_to_tensor(weights), tf.float32)

    # -- looking up ------------------------------------------------------------------------------------------

    def _rows(self, ids: Any, training: Any) -> Any:
        """The row of each of some ids."""
        if self.fixed is not None:
            # Any values: Keras 3 calls an exported model with numbers of its own.
            return self.fixed(tf.cast(ids, tf.int64))
        if not ids.dtype.is_integer:
            raise UserError(
                f"Embedding {self.name} is given ids of {ids.dtype.name}, and they must be whole numbers.",
                hint="An Input has numbers of float32 if it is not given dtype='int64'.",
            )
        if _is_compiled_by_xla():
            # In one piece: Keras and TensorFlow tell only the message.
            raise UserError(
                f"Embedding {self.name} is in a part of the model that XLA compiles (jit_compile=True), and rows of "
                "tables cannot be had from there. Leave jit_compile out of model.compile and of tf.function, or give "
                "it only to functions that begin behind the embeddings."
            )
        given = ids if ids.dtype in (tf.int64, tf.uint64) else tf.cast(ids, tf.int64)
        trains = False if training is None or not self.trainable else training
        different, inverse, rows = tf.numpy_function(
            self._find, [given, tf.cast(trains, tf.bool)], (tf.int64, tf.int64, tf.float32)
        )
        different.set_shape([None])
        inverse.set_shape(ids.shape[:1])
        rows.set_shape([None, self.output_dim])
        if not self.trainable:
            # Keras computes gradients of whatever a variable that could be trained has a part in.
            return tf.gather(rows, inverse)

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def looked_up(handle: Any) -> Any:
            def back(gradient: Any) -> Any:
                zero = tf.numpy_function(
                    self._give, [different, inverse, tf.cast(gradient, tf.float32)], tf.float32
                )
                return tf.cast(tf.reshape(zero, []), handle.dtype)

            return tf.gather(rows, inverse), back

        return looked_up(tf.convert_to_tensor(self.handle))

    def _find(self, ids: Any, create: Any) -> tuple[Any, Any, Any]:
        table, lookups = self._way()
        try:
            if self._joined is None:
                self._own().settle()
            found = lookups.find(table, as_ids(ids, what=table), create=bool(create))
        except Exception as error:
            failures.append(error)
            raise
        return found.ids, found.inverse, found.rows

    def _give(self, ids: Any, inverse: Any, gradients: Any) -> Any:
        table, lookups = self._way()
        # TensorFlow's buffer is freed after this call: the sums are ours.
        values = sum_by(inverse, gradients, len(ids))
        lookups.add(table, RowGradients(ids=np.array(ids), values=values))
        return np.float32(0)

    def _way(self) -> tuple[str, Lookups]:
        if self._joined is not None:
            return self._joined
        alone = self._own()
        return alone.table, alone.lookups

    # -- alone -----------------------------------------------------------------------------------------------

    def _own(self) -> _Alone:
        if self._alone is None:
            self._alone = _Alone(self.declaration.spec(self._table))
        return self._alone

    def save_own_variables(self, store: Any) -> None:
        """The rows, where the layer has them to itself."""
        if self.fixed is not None:
            store["ids"] = np.array(self.fixed.ids)[:-1]
            store["values"] = np.array(self.fixed.values)[:-1]
        elif self._joined is None:
            store["ids"], store["values"] = self._own().rows()

    def load_own_variables(self, store: Any) -> None:
        if "ids" in store:
            self._alone = _Alone(self.declaration.spec(self._table))
            self._alone.tables.put(self._alone.table, np.array(store["ids"]), np.array(store["values"]))

    def get_config(self) -> dict[str, Any]:
        given = self.declaration
        return {
            **super().get_config(),
            "output_dim": self.output_dim,
            "combiner": self.combiner,
            "initializer": {"kind": given.initializer.kind, **given.initializer.options},
            "table": given.table,
            "seed": given.seed,
            "admit_after": given.admit_after,
            "expire_after": given.expire_after,
        }

    def compute_output_shape(self, input_shape: Any, *_: Any) -> Any:
        shape = tuple(input_shape)
        return (*(shape if self.combiner is None else shape[:-1]), self.output_dim)


def table_layers(model: Any) -> list[tuple[str, Embedding]]:
    """The layers of a model that have tables, each once, with a name that is the same in every process."""
    layers = [vars(layer).get(MOVED, layer) for layer in model._flatten_layers()]
    ours = [layer for layer in layers if isinstance(layer, Embedding)]
    return [(f"{number}:embedding", layer) for number, layer in enumerate(ours)]


def attach(model: Any) -> None:
    """Outside of jobs: has the rows of a compiled model trained by the model's optimizer."""
    for _, layer in table_layers(model):
        layer._own().optimizer = model.optimizer


def _is_compiled_by_xla() -> bool:
    """Whether what is traced at the moment is for XLA. Where TensorFlow does not say so, it fails later by itself."""
    graph: Any = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = getattr(graph, "_get_control_flow_context", lambda: None)()
        while context is not None:
            if getattr(context, "IsXLAContext", lambda: False)():
                return True
            context = getattr(context, "outer_context", None)
        graph = getattr(graph, "outer_graph", None)
    return False


def _shared(combiner: str | None, sums: Any, total: Any, squares: Any) -> Any:
    if combiner == "sum":
        return sums
    return tf.math.divide_no_nan(sums, total if combiner == "mean" else tf.sqrt(squares))


def _flat_like(ids: Any, weights: Any) -> Any:
    if not isinstance(weights, tf.RaggedTensor):
        raise UserError("Weights must be ragged, as the ids are.")
    forms = (ids.nested_row_splits, weights.nested_row_splits)
    if len(forms[0]) != len(forms[1]):
        raise UserError("Weights do not have the form of the ids: they are ragged in another number of axes.")
    return _same_form(zip(*forms, strict=True), weights.flat_values)


def _values_like(ids: Any, weights: Any) -> Any:
    if not isinstance(weights, tf.SparseTensor):
        raise UserError("Weights must be sparse, as the ids are.")
    return _same_form([(ids.indices, weights.indices)], weights.values)


def _same_form(forms: Iterable[tuple[Any, Any]], values: Any) -> Any:
    """These values, if these are equal: as many, but otherwise shared out, they would be those of other ids."""
    checks = [
        tf.debugging.assert_equal(
            tf.cast(one, tf.int64),
            tf.cast(other, tf.int64),
            "Weights do not have the form of the ids: samples have other numbers of them",
        )
        for one, other in forms
    ]
    # Where nothing is computed by a graph, they have been made already, and are nothing.
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(values)


def as_table_initializer(given: Any, *, rows: int = 0, width: int = 0) -> Initializer:
    """Converts an initializer of Keras, or of a user of tables, for tables; `UserError` if they do not support it.

    `rows` and `width`: of the matrix that Keras would make, for initializers that go by them. The number of rows of a
    table is unknown: initializers that need it (0) get the default of tables.
    """
    if isinstance(given, (str, Mapping, Initializer)) and not (
        isinstance(given, Mapping) and "class_name" in given
    ):
        return as_initializer(given)
    made = tf.keras.initializers.get(given)
    kind = type(made).__name__
    known = _INITIALIZERS.get(kind)
    if known is None:
        raise UserError(
            f"Tables have no initializer {kind}.", hint=f"They have: {', '.join(sorted(_INITIALIZERS))}."
        )
    if np.ndim(getattr(made, "value", 0.0)):
        raise UserError(
            f"The initializer {kind} is given many numbers, and rows of tables start with one.",
            hint="Use tf.keras.layers.Embedding for numbers that are given.",
        )
    name, options = known
    config = made.get_config()
    values = {ours: float(config[theirs]) for theirs, ours in options.items()}
    if name.startswith("glorot") and rows and width:
        values |= {"fan_in": float(rows), "fan_out": float(width)}
    return Initializer(kind=name, options=values)


class _Alone:
    """The table that a layer outside of any job has to itself."""

    def __init__(self, spec: TableSpec) -> None:
        from elasticdl.ps.storage.local_tables import LocalTables

        self.table = spec.name
        self.tables = LocalTables([spec])
        self.lookups = Lookups(self.tables)
        self.optimizer: Any = None
        self._known: Any = None
        self._used: Any = None

    def settle(self) -> None:
        """Applies the pending gradients, those of the batch before: there is no callback at the end of a batch."""
        gradients = self.lookups.take()
        if not gradients:
            return
        optimizer = self._rule()
        clipped = optimizer.clip_arrays({table: found.values for table, found in gradients.items()})
        self.tables.apply(
            {table: RowGradients(ids=found.ids, values=clipped[table]) for table, found in gradients.items()},
            learning_rate=optimizer.learning_rate(self.tables.step),
        )

    def rows(self) -> tuple[Any, Any]:
        self.settle()
        return self.tables.rows(self.table)

    def _rule(self) -> Any:
        from elasticdl.ps.embedding.optimizers import make_optimizer
        from elasticdl.worker.keras.optimizer import KerasOptimizer

        if self.optimizer is None:
            log.warning(
                "The rows of %s are trained by Adagrad(0.01): elasticdl.keras.attach(model), after compile, has them "
                "trained by the model's optimizer.",
                self.table,
            )
            self.optimizer = tf.keras.optimizers.Adagrad(0.01)
        if self._used is not self.optimizer:
            self._used = self.optimizer
            self._known = KerasOptimizer(lambda: self.optimizer, name=f"the table {self.table}")
            self.tables.use_optimizer(make_optimizer(self._known.config({})))
            if getattr(self.optimizer, "global_clipnorm", None):
                log.warning(
                    "global_clipnorm: outside of a job the gradients of the rows of %s are clipped by their own norm, "
                    "and not by that of all gradients of the model.",
                    self.table,
                )
        return self._known
