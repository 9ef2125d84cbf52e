"""PyTorch: a `DataLoader` whose samples come from shards, with any number of loader processes.

    loader = ElasticDataLoader(dataset, batch_size=32, num_epochs=3, shuffle=True, num_workers=2)
    for epoch in loader.epochs():
        for images, labels in epoch:
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

from elasticai_api.common.epochs import ShardEpoch
from elasticai_api.common.record_index import RecordIndexService
from elasticai_api.common.shards import DataShardService
from elasticai_api.errors import ShardError

_Sample = TypeVar("_Sample", covariant=True)
# Arguments of a service that a loader without one makes for itself.
_OF_SERVICE = ("batch_size", "num_epochs", "shuffle", "dataset_name", "num_minibatches_per_shard")


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
        # The one to which batches are limited, if any.
        self.epoch: ShardEpoch | None = None
        self.sizes: deque[int] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes.clear()
        batch: list[int] = []
        for index in ElasticSampler(self._service) if self.epoch is None else self.epoch.indices():
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

    Args:
        dataset: Any map-style data set.
        service: Its shards, and the size of a batch. Not given, the loader makes one of `batch_size` (1), `num_epochs`
            (1), `shuffle`, `dataset_name` and `num_minibatches_per_shard`.
        report: Whether a batch is reported by asking for the next; else by `loader.service.report_batch_done(size)`.
        options: Those of `DataLoader`: num_workers, collate_fn, pin_memory, ...; but none about the order of samples
            or the size of batches, if there is a service, which decides on them.

    Raises:
        elasticai_api.errors.ShardError: An option is one that the service decides on.

    Example:
        >>> loader = ElasticDataLoader(dataset, batch_size=32, num_epochs=3, shuffle=True)
        >>> for epoch in loader.epochs():
        ...     for images, labels in epoch:
        ...         train(images, labels)

    Iterated itself, it goes through all epochs in one loop.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        service: DataShardService | None = None,
        *,
        report: bool = True,
        **options: Any,
    ) -> None:
        if service is None:
            named = {name: options.pop(name) for name in _OF_SERVICE if name in options}
            service = DataShardService(
                batch_size=named.pop("batch_size", 1),
                dataset_size=len(dataset),
                **named,
            )
            if options.get("num_workers"):
                # They outlast an epoch.
                options.setdefault("persistent_workers", True)
        taken = {*_OF_SERVICE, "sampler", "batch_sampler", "drop_last"} & options.keys()
        if taken:
            raise ShardError(
                f"{', '.join(sorted(taken))}: that is for the service to say, not for the loader."
            )
        if options.get("in_order") is False:
            raise ShardError("in_order=False: batches that come in any order cannot be counted.")
        self._batches = ElasticBatchSampler(service)
        super().__init__(dataset, batch_sampler=self._batches, **options)
        self.service = service
        self._report = report

    def __iter__(self) -> Iterator[Any]:
        yield from self._pass()
        self.service.flush()

    def epochs(self) -> Iterator[LoaderEpoch]:
        """Yields this worker's part of one epoch after the other; iterated, its batches."""
        for epoch in self.service.epochs():
            yield LoaderEpoch(self, epoch)

    def batches_of(self, epoch: ShardEpoch) -> Iterator[Any]:
        """Yields the batches of one epoch, for `for batch in epoch`."""
        self._batches.epoch = epoch
        try:
            more = True
            while more:
                more = False
                for batch in self._pass():
                    yield batch
                    # A worker that holds samples is not made to wait for those that others give back: it asks again.
                    more = self._report
            self.service.flush()
        finally:
            self._batches.epoch = None

    def _pass(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch
            if self._report:
                self.service.report_batch_done(self._batches.sizes.popleft())

    def __len__(self) -> int:
        raise TypeError("How many batches a worker gets is not known beforehand.")


class LoaderEpoch:
    """This worker's part of one epoch, as batches. `number` counts from 0 on."""

    def __init__(self, loader: ElasticDataLoader, epoch: ShardEpoch) -> None:
        self._loader = loader
        self._epoch = epoch

    @property
    def number(self) -> int:
        return self._epoch.number

    def __iter__(self) -> Iterator[Any]:
        return self._loader.batches_of(self._epoch)


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
