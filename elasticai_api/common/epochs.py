"""Shards as two loops, of epochs and of what is in them: a place for what is done once an epoch.

    for epoch in service.epochs():
        for indices in epoch.batches():
            train(samples[indices])
        evaluate(model)

The stream of shards is cut where the epoch of the next shard is another one. What a worker sees of an epoch is its part
of it, so the end of the inner loop is the end of that part.

Failure modes
    A worker that is killed or drained has its rest trained by others. At the end of the data a worker waits for what
    others still hold; if it comes back, it is one more epoch with the same number, so that no sample is lost. A master
    that does not tell epochs (the public package's protocol) makes one epoch of them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from elasticai_api.proto import elasticai_api_pb2 as pb


class ShardSource(Protocol):
    """The part of a `DataShardService` that epochs use."""

    @property
    def batch_size(self) -> int: ...

    @property
    def shard_epoch(self) -> int: ...

    def fetch_shard(self) -> pb.Shard | None: ...

    def report_batch_done(self, batch_size: int | None = None) -> bool: ...


class ShardEpochs:
    """The epochs that a worker takes part in; iterated, one after the other until there is no more for this worker."""

    def __init__(self, service: ShardSource) -> None:
        self.service = service
        # Fetched, and not begun.
        self._next: pb.Shard | None = None
        self._number = 0

    def __iter__(self) -> Iterator[ShardEpoch]:
        while self._peek() is not None:
            yield ShardEpoch(self, self._number)

    def take(self, number: int) -> pb.Shard | None:
        """The next shard, if it is of this epoch."""
        if self._peek() is None or self._number != number:
            return None
        shard, self._next = self._next, None
        return shard

    def _peek(self) -> pb.Shard | None:
        if self._next is None:
            self._next = self.service.fetch_shard()
            if self._next is not None:
                self._number = max(0, self.service.shard_epoch - 1)
        return self._next


class ShardEpoch:
    """This worker's part of one epoch; iterated, its shards. `number` counts from 0 on."""

    def __init__(self, epochs: ShardEpochs, number: int) -> None:
        self._epochs = epochs
        self.number = number

    def __iter__(self) -> Iterator[pb.Shard]:
        while (shard := self._epochs.take(self.number)) is not None:
            yield shard

    def indices(self) -> Iterator[int]:
        """The indices of all samples, one by one; not reported."""
        for shard in self:
            yield from shard.indices or range(shard.start, shard.end)

    def batches(self, *, report: bool = True) -> Iterator[list[int]]:
        """The indices of batch after batch; the last one of the epoch may be smaller.

        A batch is reported when the next one is asked for, unless `report` is false; then the program calls
        `service.report_batch_done(len(indices))`, after it has saved its model for example.
        """
        service = self._epochs.service
        more = True
        while more:
            more = False
            for batch in _batched(self.indices(), service.batch_size):
                yield batch
                if report:
                    service.report_batch_done(len(batch))
                    # A worker that holds samples is not made to wait for those that others give back.
                    more = True

    def __repr__(self) -> str:
        return f"ShardEpoch({self.number})"


def _batched(indices: Iterator[int], size: int) -> Iterator[list[int]]:
    batch: list[int] = []
    for index in indices:
        batch.append(index)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
