"""Large embeddings of PyTorch, moved to the parameter servers and back: see `embedding_offload.py`.

A module stays the object that it is, and becomes one of another class (`exchange`): a model may have it under several
names, or in a dict that PyTorch knows nothing of, and all of them must find the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from elasticdl.errors import UserError
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.lookups import Declaration
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.torch import Embedding, EmbeddingBag
from elasticdl.worker.model.embedding_offload import OffloadReport, Size, has_drawn_values

# Rows of an embedding that is made ordinary again, looked up at a time.
_AT_ONCE = 1 << 18
# That of torch.nn.Embedding and torch.nn.EmbeddingBag.
_OWN_INITIALIZER = Initializer(kind="normal", options={"mean": 0.0, "stddev": 1.0})


class _Moved:
    """The common part of both moved layers."""

    declaration: Declaration

    @property
    def weight(self) -> Any:
        raise UserError(
            f"The model uses the values of the embedding {self.declaration.table} (its weight) in other ways than by "
            "looking rows up, and they were moved to the parameter servers.",
            hint="Omit --move_embeddings_mib, or raise it above the size of this embedding.",
        )


class MovedEmbedding(_Moved, Embedding):
    """Replaces a torch.nn.Embedding."""

    def __init__(self, replaced: Any, *, name: str, initializer: Initializer) -> None:
        super().__init__(replaced.embedding_dim, table=name, initializer=initializer)
        self.num_embeddings = replaced.num_embeddings
        # Models are computed where their parameters are.
        self.to(replaced.weight.device)

    # The names are those of PyTorch's.
    def forward(self, input: Any) -> Any:  # noqa: A002
        _check_range(input, self.num_embeddings, self.declaration.table)
        return super().forward(input)

    def ordinary(self, tables: LocalTables) -> Any:
        return nn.Embedding.from_pretrained(
            _matrix(tables, self.declaration.table, self.num_embeddings), freeze=False
        )


class MovedBag(_Moved, EmbeddingBag):
    """Replaces a torch.nn.EmbeddingBag."""

    def __init__(self, replaced: Any, *, name: str, initializer: Initializer) -> None:
        super().__init__(replaced.embedding_dim, mode=replaced.mode, table=name, initializer=initializer)
        self.num_embeddings = replaced.num_embeddings
        self.to(replaced.weight.device)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:  # noqa: A002
        _check_range(input, self.num_embeddings, self.declaration.table)
        return super().forward(input, offsets, per_sample_weights)

    def ordinary(self, tables: LocalTables) -> Any:
        rows = _matrix(tables, self.declaration.table, self.num_embeddings)
        return nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode=self.mode)


def move_large(model: Any, *, at_least: int) -> list[str]:
    """Replaces the embeddings of a model with at least so many bytes. Returns remarks for the user."""
    report = OffloadReport()
    found = {
        name: module
        for name, module in model.named_modules()
        if type(module) in (nn.Embedding, nn.EmbeddingBag)
        and module.weight.numel() * module.weight.element_size() >= at_least
        and name
    }
    for name, module in found.items():
        size = Size(name=name, rows=module.num_embeddings, width=module.embedding_dim)
        if why := _obstacle(model, module):
            report.left(size, why)
            continue
        kind = MovedBag if isinstance(module, nn.EmbeddingBag) else MovedEmbedding
        exchange(module, kind(module, name=name, initializer=_OWN_INITIALIZER))
        report.moved(size)
    return report.remarks()


def moved_sizes(model: Any) -> list[Size]:
    """Returns the sizes of the moved embeddings."""
    return [
        Size(name=layer.declaration.table, rows=layer.num_embeddings, width=layer.embedding_dim)
        for layer in model.modules()
        if isinstance(layer, MovedEmbedding | MovedBag)
    ]


def _obstacle(model: Any, module: Any) -> str:
    """Returns why a table cannot take the place of an embedding, "" if it can."""
    if not module.weight.requires_grad:
        return "it is not trained"
    if module.weight.dtype != torch.float32:
        return f"its values are of {module.weight.dtype}, and those of tables of torch.float32"
    if module.padding_idx is not None or module.max_norm is not None or module.scale_grad_by_freq:
        return "tables have no padding_idx, max_norm or scale_grad_by_freq"
    if isinstance(module, nn.EmbeddingBag) and (module.mode == "max" or module.include_last_offset):
        return "tables have bags by sum and mean, without a last offset"
    users = sum(
        parameter is module.weight
        for owner in model.modules()
        for parameter in owner.parameters(recurse=False)
    )
    if users > 1:
        return "another module uses its values too"
    if module._forward_hooks or module._forward_pre_hooks:
        return "it has hooks"
    if not has_drawn_values(_OWN_INITIALIZER, module.weight.detach().cpu().numpy()):
        return (
            "its values were set, and are not what its own initializer draws; use elasticdl.torch.Embedding"
        )
    return ""


def exchange(one: Any, other: Any) -> None:
    """Each module is from now on what the other was."""
    kinds, contents = (type(one), type(other)), (one.__dict__, other.__dict__)
    for module, kind, content in zip((other, one), kinds, contents, strict=True):
        module.__class__ = kind
        module.__dict__ = content


def _check_range(ids: Any, rows: int, name: str) -> None:
    given = ids.values() if isinstance(ids, torch.Tensor) and ids.is_nested else ids
    if isinstance(given, torch.Tensor) and given.numel():
        low, high = int(given.min()), int(given.max())
        if low < 0 or high >= rows:
            raise UserError(
                f"The embedding {name} has {rows:,} rows, and is asked for {low if low < 0 else high}."
            )


def _matrix(tables: LocalTables, table: str, rows: int) -> Any:
    """All rows of a table whose ids are numbers from 0 on."""
    parts = [
        tables.pull_rows({table: np.arange(first, min(first + _AT_ONCE, rows))}, create=False)[table]
        for first in range(0, rows, _AT_ONCE)
    ]
    return torch.from_numpy(np.concatenate(parts))
