"""Makes batches with their progress from the output of a feed for a shard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticdl.errors import UserError
from elasticdl.worker.keras.input.record_chunks import ShardRecords
from elasticdl.worker.trainer import Batch


class ShardAccount:
    """Counts the samples of one shard. `in_order`: the feed gives one for each record, in their order."""

    def __init__(self, records: ShardRecords, *, in_order: bool) -> None:
        self._records = records
        self._in_order = in_order
        self._count = 0
        self._ended = False
        self._held: Batch | None = None

    def add(self, features: Any, labels: Any, size: int) -> Batch | None:
        """The batch, or, where only the end of the shard tells which one was its last, the one before."""
        records, shard = self._records, self._records.shard
        self._count += size
        if self._in_order:
            position = records.position_after(self._count)
            self._ended = position >= shard.end
            bad = records.take_bad(None if self._ended else position)
        else:
            position, bad = shard.start, ()
        batch = Batch(
            shard=shard,
            position=position,
            atomic=not self._in_order,
            last=self._ended,
            size=size,
            features=features,
            labels=labels,
            bad=bad,
        )
        if self._in_order:
            return batch
        before, self._held = self._held, batch
        return before

    def end(self) -> Batch | None:
        """The last batch of the shard, if it has not been given yet; one without samples if there is no other."""
        if self._ended:
            return None
        records, shard = self._records, self._records.shard
        if self._in_order and self._count != records.readable:
            raise UserError(
                f"The feed made {self._count} samples of the {records.readable} records of samples"
                f" [{shard.start}, {shard.end}), in a way that was not to be seen before."
            )
        last = self._held or Batch(
            shard=shard, position=shard.end, atomic=not self._in_order, last=True, size=0
        )
        return replace(last, position=shard.end, last=True, bad=records.take_bad())
