"""Gradients clipped as the optimizer says (`grad_clip`), those of rows of tables among them.

Parameter servers make the step, so gradients are clipped before they are pushed. Rows of tables are no parameters, but
the handle of each layer that has a table is one: it stands for the rows of the batch, so that a norm over all gradients
is that of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.worker.paddle.optimizer import groups_of
from elasticdl.worker.paddle.tensors import gradient_of

# With the names of their tables.
Layers = Sequence[tuple[str, Any]]


def clips(optimizer: Any) -> bool:
    return any(options.get("grad_clip") is not None for _, options in groups_of(optimizer))


@paddle.no_grad()  # type: ignore[untyped-decorator]
def clip_gradients(
    optimizer: Any, layers: Layers, rows: Mapping[str, RowGradients]
) -> dict[str, RowGradients]:
    """Clips the gradients that parameters have, and those of rows; of these, returns what is left."""
    left = dict(rows)
    # The first of layers that share a table has the gradients.
    handles = {id(layer.handle): table for table, layer in reversed(layers) if table in rows}
    for parameters, options in groups_of(optimizer):
        clip = options.get("grad_clip")
        if clip is None:
            continue
        pairs, tables = [], []
        for parameter in parameters:
            table = handles.get(id(parameter))
            gradient = paddle.to_tensor(rows[table].values) if table else gradient_of(parameter)
            if gradient is not None:
                pairs.append((parameter, gradient))
                tables.append(table)
        if not pairs:
            continue
        for (parameter, gradient), table in zip(clip(pairs), tables, strict=True):
            if table:
                values = np.ascontiguousarray(gradient.numpy())
                left[table] = RowGradients(ids=rows[table].ids, values=values)
            else:
                parameter.grad = gradient
    return left


def step_clipped(optimizer: Any, layers: Layers, rows: Mapping[str, RowGradients]) -> dict[str, RowGradients]:
    """A step of the optimizer. Returns the gradients of rows, clipped together with the others."""
    if not rows or not clips(optimizer):
        optimizer.step()
        return dict(rows)
    left: dict[str, RowGradients] = clip_gradients(optimizer, layers, rows)
    with_groups = isinstance(optimizer._param_groups[0], dict)
    kept = [group["grad_clip"] for group in optimizer._param_groups] if with_groups else []
    own, optimizer._grad_clip = optimizer._grad_clip, None
    for group in optimizer._param_groups if with_groups else ():
        group["grad_clip"] = None
    try:
        optimizer.step()
    finally:
        optimizer._grad_clip = own
        for group, clip in zip(optimizer._param_groups if with_groups else (), kept, strict=True):
            group["grad_clip"] = clip
    return left
