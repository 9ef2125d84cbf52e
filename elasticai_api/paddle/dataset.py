"""Paddle: samples from shards, for `paddle.io.DataLoader`, `paddle.Model.fit` and loops of one's own.

    service = build_data_shard_service(batch_size=32, num_epochs=3, dataset_size=len(dataset))
    for images, labels in ElasticDataLoader(dataset, service, num_workers=2):
        train(images, labels)

Shards are fetched where the program runs, batches of indices are made there, and loader processes only read samples.
So batches come in the order in which their indices were fetched, and counting them is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import paddle

from elasticai_api.common.shards import DataShardService
from elasticai_api.errors import ShardError


def shard_indices(service: DataShardService) -> Iterator[int]:
    """Yields the indices of the samples of one shard after the other."""
    while (shard := service.fetch_shard()) is not None:
        yield from shard.indices or range(shard.start, shard.end)


class ElasticIterableDataset(paddle.io.IterableDataset):  # type: ignore[misc]
    """A map-style data set as a stream of the samples that this worker trains on.

    For a plain `DataLoader` with the batch size of the service and without loader processes, or for
    `paddle.Model.fit`. Batches are reported by the loop (`service.report_batch_done(size)`) or by
    `ElasticReportCallback`.

    Args:
        dataset: Any map-style data set, or a list of samples.
        service: Its shards.

    Example:
        >>> loader = paddle.io.DataLoader(ElasticIterableDataset(dataset, service), batch_size=32)
    """

    def __init__(self, dataset: Any, service: DataShardService) -> None:
        super().__init__()
        self._dataset = dataset
        self._service = service

    def __iter__(self) -> Iterator[Any]:
        if paddle.io.get_worker_info() is not None:
            raise ShardError(
                "Loader processes cannot fetch shards; use ElasticDataLoader for several of them."
            )
        for index in shard_indices(self._service):
            yield self._dataset[index]


class ElasticBatchSampler(paddle.io.BatchSampler):  # type: ignore[misc]
    """Batches of indices, of as many samples as a batch of the service has. A batch may go over several shards.

    `sizes` has the number of samples of each batch that was made and not yet taken from there.
    """

    def __init__(self, service: DataShardService) -> None:
        # Not that of Paddle's: it wants the data set, whose indices it would draw itself.
        self._service = service
        self.sizes: deque[int] = deque()
        self.batch_size = service.batch_size
        self.drop_last = False

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes.clear()
        batch: list[int] = []
        for index in shard_indices(self._service):
            batch.append(index)
            if len(batch) == self._service.batch_size:
                self.sizes.append(len(batch))
                yield batch
                batch = []
        if batch:
            self.sizes.append(len(batch))
            yield batch

    def __len__(self) -> int:
        raise TypeError("How many batches a worker gets is not known beforehand.")


class ElasticDataLoader:
    """Batches of a map-style data set, whose samples come from a service, and which are reported.

    A batch is reported when the loop asks for the next one: it has been trained on by then. What a loop that is left
    early (`break`, an error) had in its hands is not reported, and trained on by another worker.

    Args:
        dataset: Any map-style data set.
        service: Its shards, and the size of a batch.
        report: Whether a batch is reported by asking for the next; else by `service.report_batch_done(size)`.
        options: Those of `paddle.io.DataLoader`: num_workers, collate_fn, ...; but none about the order of samples or
            the size of batches, which are the service's.

    Raises:
        elasticai_api.errors.ShardError: An option is one that the service decides on.

    Example:
        >>> for images, labels in ElasticDataLoader(dataset, service, num_workers=2):
        ...     train(images, labels)
    """

    def __init__(
        self, dataset: Any, service: DataShardService, *, report: bool = True, **options: Any
    ) -> None:
        taken = {"batch_size", "shuffle", "batch_sampler", "drop_last"} & options.keys()
        if taken:
            raise ShardError(f"{', '.join(sorted(taken))}: the service decides on that, not the loader.")
        self._batches = ElasticBatchSampler(service)
        self._loader = paddle.io.DataLoader(dataset, batch_sampler=self._batches, **options)
        self._service = service
        self._report = report

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield batch
            if self._report:
                self._service.report_batch_done(self._batches.sizes.popleft())
        self._service.flush()
