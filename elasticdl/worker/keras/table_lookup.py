"""Embeddings whose rows are in tables, as something TensorFlow alone can compute: what becomes of them in an export.

An exported model knows the ids that have rows: sorted, beside a matrix of theirs. It finds an id's row by binary
search. All other ids have the row behind the last one: the mean of what rows start as, since what exactly such a row
would start as is known to ElasticDL alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.worker.table_layers import Tables

_LARGEST = 2**63 - 1


class FixedRows(tf.Module):  # type: ignore[misc]
    def __init__(self, ids: Any, values: Any, *, mean: float) -> None:
        """Sorted ids with their rows."""
        super().__init__(name="rows")
        others = np.full((1, values.shape[1]), mean, np.float32)
        # The last finds the row of those that are not there, should it be asked for itself.
        self.ids = tf.Variable(np.concatenate([ids, [_LARGEST]]), trainable=False, dtype=tf.int64)
        self.values = tf.Variable(np.concatenate([values, others]), trainable=False, dtype=tf.float32)

    def __call__(self, ids: Any) -> Any:
        known = tf.convert_to_tensor(self.ids)
        places = tf.searchsorted(known, ids)
        found = tf.equal(tf.gather(known, places), ids)
        return tf.gather(self.values, tf.where(found, places, tf.size(known) - 1))


@contextlib.contextmanager
def as_ordinary(tables: Tables) -> Iterator[None]:
    """Makes the model's layers ordinary ones inside of this context."""
    assert tables.own is not None
    fixed = {}
    for table, layer in tables.layers:
        if table not in fixed:
            ids, values = tables.own.rows(table)
            fixed[table] = FixedRows(ids, values, mean=layer.declaration.initializer.mean)
        layer.fix(fixed[table])
    try:
        yield
    finally:
        for _, layer in tables.layers:
            layer.fix(None)
