"""The form of a bucket on its way between servers: which attributes and arrays `BucketStore.export` gives.

A bucket is checked before anything of it is taken in. An error in the middle would leave half of a bucket behind, so
the server would have to exit: a malformed message must not be able to cause that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.resharding import TRAINABLE, WAITING_PREFIX
from elasticdl.ps.checkpoint.table_files import TableDescription
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.table import MOST_PARTS
from elasticdl.ps.storage.table_set import ROWS_PREFIX
from elasticdl.ps.storage.update_history import UpdateHistory
from elasticdl.wire import ps_pb2

# By array: dtype, number of dimensions, and the array of ids that it belongs to.
_ROW_ARRAYS = {
    "ids": ("int64", 1, "ids"),
    "values": ("float32", 2, "ids"),
    "slots": ("float32", 3, "ids"),
    "steps": ("uint32", 1, "ids"),
    "seen": ("uint32", 1, "ids"),
    "waiting_ids": ("int64", 1, "waiting_ids"),
    "waiting_counts": ("uint32", 1, "waiting_ids"),
    "waiting_seen": ("uint32", 1, "waiting_ids"),
}


def check_bucket(
    attributes: Any, groups: Mapping[str, Mapping[str, Array]], *, part: int, parts: int
) -> None:
    """Raises `ValueError` if no server exports a part of a bucket like this."""
    if not part < parts <= MOST_PARTS:
        raise ValueError(f"a bucket has no part {part} of {parts}")
    try:
        if part:
            int(attributes["version"])
        else:
            _check_attributes(attributes)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, UserError) as error:
        raise ValueError(f"the attributes of the bucket are malformed: {error!r}") from error
    for name, value in groups.get(TRAINABLE, {}).items():
        if value.dtype.kind != "f":
            raise ValueError(f"the parameter {name} is of {value.dtype.name}")
    for group, members in groups.items():
        if group.startswith((ROWS_PREFIX, WAITING_PREFIX)):
            _check_rows(group, members, are_all_needed=group.startswith(WAITING_PREFIX))


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    optimizer = attributes.get("optimizer")
    if optimizer:
        ps_pb2.OptimizerConfig(**optimizer)
    UpdateHistory.of_attributes(np.zeros(BUCKETS, np.bool_), dict(attributes))
    for name, document in attributes.get("tables", {}).items():
        TableDescription.of_json(name, document)
    fenced = attributes.get("fenced", [])
    if not isinstance(fenced, list) or not all(isinstance(worker, str) for worker in fenced):
        raise TypeError(f"the fenced workers are {fenced!r}")


def _check_rows(group: str, members: Mapping[str, Array], *, are_all_needed: bool) -> None:
    for key, array in members.items():
        bucket, _, kind = key.partition("/")
        form = _ROW_ARRAYS.get(kind)
        if form is None:
            raise ValueError(f"{group} has an unknown array {key!r}")
        dtype, dimensions, ids = form
        if array.dtype.name != dtype or array.ndim != dimensions:
            raise ValueError(f"{group}, {key}: {array.dtype.name} of {array.ndim} dimensions")
        if len(array) != len(members.get(f"{bucket}/{ids}", ())):
            raise ValueError(f"{group}, {key}: {len(array)} rows are not as many as ids")
        if are_all_needed and not {f"{bucket}/ids", f"{bucket}/values"} <= members.keys():
            raise ValueError(f"{group}, {bucket}: ids or values are missing")
