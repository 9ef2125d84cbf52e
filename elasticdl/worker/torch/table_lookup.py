"""Embeddings whose rows are in tables, as ordinary modules: what becomes of them in an exported program.

An exported program knows the ids that have rows: sorted, beside an ordinary embedding of theirs. It finds an id's row
by binary search. All other ids have the row behind the last one: the mean of what rows start as, since what exactly
such a row would start as is known to ElasticDL alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.torch import EmbeddingBag, TableLayer
from elasticdl.worker.table_layers import Tables
from elasticdl.worker.torch.embedding_offload import MovedBag, MovedEmbedding, exchange

_LARGEST = 2**63 - 1


class LookupEmbedding(nn.Module):  # type: ignore[misc]
    """An id's row, for ids of any shape."""

    def __init__(self, ids: Any, values: Any) -> None:
        """Sorted ids with their rows, and one row more for all others."""
        super().__init__()
        # The last finds the row of those that are not there, should it be asked for itself.
        self.register_buffer("ids", torch.cat([ids, torch.tensor([_LARGEST])]))
        self.embedding = nn.Embedding.from_pretrained(values)

    def places(self, ids: torch.Tensor) -> torch.Tensor:
        found = torch.searchsorted(self.ids, ids)
        others = torch.full_like(found, self.ids.shape[0] - 1)
        return torch.where(self.ids[found] == ids, found, others)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.embedding(self.places(ids.to(torch.int64)))
        return rows


class LookupBag(LookupEmbedding):
    """Returns one row for the ids of a line, or of those from one offset to the next."""

    def __init__(self, ids: Any, values: Any, mode: str) -> None:
        super().__init__(ids, values)
        self.mode = mode

    def forward(
        self, ids: torch.Tensor, offsets: torch.Tensor | None = None, weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        rows = self.embedding(self.places(ids.to(torch.int64)))
        given = torch.ones_like(rows[..., 0]) if weights is None else weights.to(rows.dtype)
        weighted = rows * given.unsqueeze(-1)
        if offsets is None:
            sums, total, squares = weighted.sum(-2), given.sum(-1), (given * given).sum(-1)
        else:
            bags = torch.searchsorted(offsets, torch.arange(ids.shape[0], device=ids.device), right=True) - 1
            number = offsets.shape[0]
            sums = rows.new_zeros(number, rows.shape[1]).index_add(0, bags, weighted)
            total = rows.new_zeros(number).index_add(0, bags, given)
            squares = rows.new_zeros(number).index_add(0, bags, given * given)
        if self.mode == "sum":
            return sums
        by = total if self.mode == "mean" else squares.sqrt()
        return sums / torch.where(by == 0, torch.ones_like(by), by).unsqueeze(-1)


@contextlib.contextmanager
def with_own_rows(tables: Tables) -> Iterator[None]:
    """Gives every layer rows of its own inside of this context, as in a notebook, so that `state_dict` has them too.
    Moved layers become ordinary ones.
    """
    assert tables.own is not None
    own = tables.own
    moved = []
    for table, layer in tables.layers:
        if isinstance(layer, MovedEmbedding | MovedBag):
            moved.append((layer, layer.ordinary(own)))
            continue
        ids, values = own.rows(table)
        layer.join(table, None)
        layer.set_extra_state({"ids": torch.from_numpy(ids), "values": torch.from_numpy(values)})
    try:
        with _exchanged(moved):
            yield
    finally:
        assert tables.lookups is not None
        for table, layer in tables.layers:
            layer.join(table, tables.lookups)


@contextlib.contextmanager
def as_ordinary(tables: Tables) -> Iterator[None]:
    """Makes the model's layers ordinary modules, which PyTorch can export, inside of this context."""
    assert tables.own is not None
    with _exchanged([(layer, _ordinary(layer, table, tables.own)) for table, layer in tables.layers]):
        yield


@contextlib.contextmanager
def _exchanged(pairs: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Exchanges layers with their replacements inside of this context."""
    for layer, made in pairs:
        exchange(layer, made)
    try:
        yield
    finally:
        for layer, made in pairs:
            exchange(layer, made)


def _ordinary(layer: TableLayer, table: str, tables: LocalTables) -> Any:
    if isinstance(layer, MovedEmbedding | MovedBag):
        return layer.ordinary(tables).eval()
    ids, values = tables.rows(table)
    others = np.full((1, values.shape[1]), layer.declaration.initializer.mean, np.float32)
    known, rows = torch.from_numpy(ids), torch.from_numpy(np.concatenate([values, others]))
    if isinstance(layer, EmbeddingBag):
        return LookupBag(known, rows, layer.mode).eval()
    return LookupEmbedding(known, rows).eval()
