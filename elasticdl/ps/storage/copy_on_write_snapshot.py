"""A consistent state of a bucket store, for evaluation and for checkpoints while training goes on.

Taking one copies nothing. Dense arrays are shared until the next update (`dense_parameters.py`), tables keep the rows
that change (`table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.ps.checkpoint.array_file import ArrayFileWriter, NamedArrays, check_finite
from elasticdl.ps.checkpoint.resharding import TRAINABLE, WAITING_PREFIX
from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.table import Frozen
from elasticdl.ps.storage.bucket_store import BucketStore


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """Size and checksum of a finished checkpoint file."""

    bytes: int
    crc32: int
    # False: it has only the changes since an earlier one.
    complete: bool


@dataclass(frozen=True, kw_only=True)
class CopyOnWriteSnapshot:
    # The buckets in it: all that the server had all of.
    mask: Mask
    version: int
    attributes: Mapping[str, Any]
    groups: Mapping[str, Mapping[str, Array]]
    # The bucket of each dense array.
    buckets: Mapping[str, int]
    tables: Mapping[str, Frozen]

    @classmethod
    def make(cls, bucket_store: BucketStore, mask: Mask, *, mark: bool = False) -> CopyOnWriteSnapshot:
        """`mark`: it is going to be written, and the next one may have only what has changed since."""
        histories = bucket_store.histories.select(mask)
        newest = max(histories, key=lambda history: history.version, default=None)
        history = newest.attributes() if newest is not None else {"version": 0}
        return cls(
            mask=mask,
            version=history["version"],
            # Workers and their batches are of this generation, and a file is for later ones.
            attributes={
                **bucket_store.attributes(),
                **{key: value for key, value in history.items() if key not in ("last", "initialized")},
            },
            groups={**bucket_store.dense_groups(mask), **bucket_store.tables.waiting_groups(mask)},
            buckets=dict(bucket_store.buckets),
            tables=bucket_store.tables.freeze(mark=mark),
        )

    def snapshot(self, mask: Mask) -> NamedArrays:
        """Returns the content of some buckets, without tables."""
        groups: dict[str, dict[str, Array]] = {}
        for group, members in self.groups.items():
            waiting = group.startswith(WAITING_PREFIX)
            groups[group] = {
                name: array
                for name, array in members.items()
                if mask[int(name.partition("/")[0]) if waiting else self.buckets[name]]
            }
        return NamedArrays(attributes=dict(self.attributes), groups=groups)

    def write(
        self,
        path: Path,
        bucket_store: BucketStore,
        mask: Mask,
        *,
        since: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> WrittenFile:
        """Writes a file of some buckets.

        Of their tables, as far as that is known, only what has changed since an earlier copy. `check` may raise to end
        it.
        """
        snapshot = self.snapshot(mask)
        check_finite("parameter", snapshot.groups.get(TRAINABLE, {}))
        with ArrayFileWriter(path, check=check) as file:
            for group, members in snapshot.groups.items():
                if not members:
                    file.add_empty(group)
                for name, array in members.items():
                    file.add(group, name, array)
            complete = bucket_store.tables.write(file, mask & self.mask, self.tables, since=since)
            size, crc32 = file.finish(self.attributes)
        return WrittenFile(bytes=size, crc32=crc32, complete=complete)

    def release(self, bucket_store: BucketStore) -> None:
        bucket_store.tables.release(self.tables)
