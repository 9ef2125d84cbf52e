"""Embeddings whose rows are in tables, as ordinary layers: what becomes of them in an exported program.

An exported program knows the ids that have rows: sorted, beside an ordinary embedding of theirs. It finds an id's row
by binary search. All other ids have the row behind the last one: the mean of what rows start as, since what exactly
such a row would start as is known to ElasticDL alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
from paddle import nn

from elasticdl.worker.table_layers import Tables

_LARGEST = 2**63 - 1


class LookupEmbedding(nn.Layer):  # type: ignore[misc]
    """An id's row, for ids of any shape."""

    def __init__(self, ids: Any, values: Any) -> None:
        """Sorted ids with their rows, and one row more for all others."""
        super().__init__()
        # The last finds the row of those that are not there, should it be asked for itself.
        self.register_buffer("ids", paddle.to_tensor(np.append(ids, _LARGEST)))
        self.register_buffer("values", paddle.to_tensor(values))

    def forward(self, ids: Any) -> Any:
        wanted = ids.astype("int64").flatten()
        found = paddle.searchsorted(self.ids, wanted)
        others = paddle.full_like(found, self.ids.shape[0] - 1)
        places = paddle.where(paddle.gather(self.ids, found) == wanted, found, others)
        rows = paddle.gather(self.values, places)
        return rows.reshape([-1, *ids.shape[1:], self.values.shape[1]])


def exchange(one: Any, other: Any) -> None:
    """Each layer is from now on what the other was. A model may have it under several names, or in a dict that Paddle
    knows nothing of, and all of them must find the same.
    """
    kinds, contents = (type(one), type(other)), (one.__dict__, other.__dict__)
    for layer, kind, content in zip((other, one), kinds, contents, strict=True):
        layer.__class__ = kind
        layer.__dict__ = content


@contextlib.contextmanager
def as_ordinary(tables: Tables) -> Iterator[None]:
    """Makes the model's layers ordinary ones, which Paddle can export, inside of this context."""
    assert tables.own is not None
    pairs = []
    for table, layer in tables.layers:
        ids, values = tables.own.rows(table)
        order = np.argsort(ids)
        others = np.full((1, values.shape[1]), layer.declaration.initializer.mean, np.float32)
        made = LookupEmbedding(ids[order], np.concatenate([values[order], others]))
        made.eval()
        pairs.append((layer, made))
    for layer, made in pairs:
        exchange(layer, made)
    try:
        yield
    finally:
        for layer, made in pairs:
            exchange(layer, made)
