"""The ids of a batch that come more than once: each is asked for once, and its gradients are sent as one sum.

    ids, inverse = unique(batch)            ids[inverse] is the batch
    rows = ...                              pulled for `ids`; rows[inverse] is what the model sees (`take_rows`)
    sums = sum_by(inverse, gradients, len(ids))

Unique ids come in the order of the buckets that they belong to (`bucket_starts`): what a server gets of them is a few
slices, and no row is moved to put them together again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps import _kernels
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.table import Ids, as_ids


def unique(ids: Any) -> tuple[Ids, Ids]:
    """The different ids in the order of their buckets, and for each id given, flat, which of them it is."""
    return _kernels.unique(as_ids(ids, what="the batch"), BUCKETS)


def sum_by(
    inverse: Ids, gradients: Array, n: int, *, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """The sums, in float32, of the gradients (float32, float16, or bfloat16 as uint16) of each of n different ids.

    They are added up in their order: the same batch gives the same sums, to the bit. `out`, of n rows, is
    overwritten; a caller who keeps it saves the system the work of finding memory for each batch.
    """
    sums = np.empty((n, gradients.shape[1]), np.float32) if out is None else out
    _kernels.sum_by(inverse, np.ascontiguousarray(gradients), sums)
    return sums


def take_rows(rows: Array, inverse: Ids, *, out: NDArray[np.float32]) -> None:
    """out[:] = rows[inverse], all of float32."""
    _kernels.spread(np.ascontiguousarray(rows), inverse, out)


def bucket_starts(ids: Ids) -> Ids | None:
    """Returns the start of each bucket in these ids, and their end; None if they are not sorted by bucket."""
    buckets = _kernels.buckets_of(ids, BUCKETS)
    if np.any(buckets[1:] < buckets[:-1]):
        return None
    return np.searchsorted(buckets, np.arange(BUCKETS + 1, dtype=np.uint32)).astype(np.int64, copy=False)
