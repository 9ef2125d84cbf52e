"""PyTorch: a `DataLoader` whose samples come from shards, with any number of loader processes.

    service = build_data_shard_service(batch_size=32, num_epochs=3, dataset_size=len(dataset))
    for images, labels in ElasticDataLoader(dataset, service, num_workers=2):
        train(images, labels)

Shards are fetched where the program runs, batches of indices are made there, and loader processes only read samples.
So batches come in the order in which their indices were fetched, and counting them is exact. A batch is reported
when the loop asks for the next one: it has been trained on by then. The last batch of a loop that is left early
(`break`, an error) is not reported, and another worker trains on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, TypeVar

from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from elasticai_api.common.record_index import RecordIndexService
from elasticai_api.common.shards import DataShardService
from elasticai_api.errors import ShardError

_Sample = TypeVar("_Sample", covariant=True)


class ElasticSampler(Sampler[int]):  # type: ignore[misc]
    """The indices of the samples of one shard after the other. Its length is not known beforehand."""

    def __init__(self, service: DataShardService) -> None:
        self._service = service

    def __iter__(self) -> Iterator[int]:
        while (shard := self._service.fetch_shard()) is not None:
            yield from shard.indices or range(shard.start, shard.end)


class ElasticBatchSampler(Sampler[list[int]]):  # type: ignore[misc]
    """Batches of indices, of as many samples as a batch of the service has. A batch may go over several shards.

    `sizes` has the number of samples of each batch that was made and not yet taken from there.
    """

    def __init__(self, service: DataShardService) -> None:
        self._service = service
        self.sizes: deque[int] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes.clear()
        batch: list[int] = []
        for index in ElasticSampler(self._service):
            batch.append(index)
            if len(batch) == self._service.batch_size:
                self.sizes.append(len(batch))
                yield batch
                batch = []
        if batch:
            self.sizes.append(len(batch))
            yield batch


class ElasticDataLoader(DataLoader[Any]):  # type: ignore[misc]
    """A `DataLoader` over a map-style data set that gets its samples from a service and reports its batches.

    Arguments
        dataset: any map-style data set.
        service: its shards, and the size of a batch.
        report: whether a batch is reported by asking for the next; else by `service.report_batch_done(size)`.
        options: those of `DataLoader`: num_workers, collate_fn, pin_memory, ...; but none about the order of samples
            or the size of batches, which are the service's.

    One loop goes through all epochs of the data set; `service.get_current_epoch()` tells which is given out.
    """

    def __init__(
        self, dataset: Dataset[Any], service: DataShardService, *, report: bool = True, **options: Any
    ) -> None:
        taken = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"} & options.keys()
        if taken:
            raise ShardError(
                f"{', '.join(sorted(taken))}: that is for the service to say, not for the loader."
            )
        if options.get("in_order") is False:
            raise ShardError("in_order=False: batches that come in any order cannot be counted.")
        self._batches = ElasticBatchSampler(service)
        super().__init__(dataset, batch_sampler=self._batches, **options)
        self._service = service
        self._report = report

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch
            if self._report:
                self._service.report_batch_done(self._batches.sizes.popleft())
        self._service.flush()

    def __len__(self) -> int:
        raise TypeError("How many batches a worker gets is not known beforehand.")


class ElasticIterableDataset(IterableDataset[_Sample]):  # type: ignore[misc]
    """Any map-style data set as a stream, for a plain `DataLoader`: each loader process takes the next index.

    The service has to know how many loader processes there are (`num_workers`); batches are reported by the loop
    (`service.report_batch_done(size)`).
    """

    def __init__(self, dataset: Dataset[_Sample], service: RecordIndexService) -> None:
        self._dataset = dataset
        self._service = service

    def __iter__(self) -> Iterator[_Sample]:
        for index in self._service.record_index_gen():
            yield self._dataset[index]
