"""Updates of rows by an optimizer of the user's own.

The table makes rows, counts their updates and decides who must wait, as ever; the numbers are taken out, given to the
user's code all at once, and put back. That is slower than the optimizers that are compiled, by what copies and NumPy
cost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps import _kernels
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import CustomRule

Ids = NDArray[np.int64]


def update_rows(
    rule: CustomRule,
    name: str,
    table: _kernels.Table,
    ids: Ids,
    gradients: Array,
    *,
    learning_rate: float,
    step: int,
    scale: float,
    clip_norm: float,
    clip_value: float,
    unique: bool,
) -> _kernels.Outcome:
    """Updates rows like `Table.update`."""
    wide = np.empty(gradients.shape, np.float32)
    _kernels.convert(gradients, wide)
    if not unique:
        different, inverse = _kernels.unique(ids, table.buckets)
        sums = np.empty((len(different), table.width), np.float32)
        _kernels.sum_by(inverse, wide, sums)
        ids, wide = different, sums
    # Leaves numbers as they are, and refuses gradients that are not finite.
    outcome = table.update(ids, wide, learning_rate, step, unique=True)
    if outcome.not_finite:
        return outcome
    found = table.take(ids)
    present = found["present"]
    if not present.any():
        return outcome
    slots = found["slots"][present]
    value, changed = rule.update(
        f"rows of the table {name}",
        found["values"][present],
        _prepared(wide[present], scale, clip_norm, clip_value),
        {slot: slots[:, number] for number, slot in enumerate(rule.slots)},
        learning_rate,
        # As floats, since most of what is done with them are powers.
        found["steps"][present].astype(np.float64).reshape(-1, 1),
    )
    for number, array in enumerate(changed.values()):
        slots[:, number] = array
    table.put(ids[present], np.ascontiguousarray(value, np.float32), slots, None, None)
    return outcome


def _prepared(gradients: Array, scale: float, clip_norm: float, clip_value: float) -> Array:
    if scale != 1.0:
        gradients *= np.float32(scale)
    if clip_norm > 0:
        norms = np.sqrt(np.sum(np.square(gradients, dtype=np.float64), axis=1, keepdims=True))
        factors = clip_norm / np.maximum(norms, clip_norm)
        gradients = (gradients * factors).astype(np.float32)
    if clip_value > 0:
        gradients = np.clip(gradients, -clip_value, clip_value)
    return gradients
