"""Records one by one: from one process, from several, shuffled, counted only when they are surely done."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from multiprocessing.context import ForkContext, SpawnContext
from typing import Any

import pytest

from elasticai_api.common.data_shard_service import RecordIndexService
from elasticai_api.errors import ShardError


def test_all_records_then_the_end() -> None:
    service = RecordIndexService(batch_size=4, num_epochs=2, dataset_size=10)
    assert list(service.record_index_gen()) == list(range(10)) * 2
    with pytest.raises(StopIteration):
        service.fetch_record_index()


def test_shuffled_indices_cover_every_epoch() -> None:
    service = RecordIndexService(
        batch_size=4, num_epochs=2, dataset_size=100, shuffle=True, num_minibatches_per_shard=5
    )
    records = list(service.record_index_gen())
    assert records[:100] != records[100:]
    assert records[:100] != sorted(records[:100])
    assert Counter(records) == Counter(list(range(100)) * 2)


def take(service: Any, taken: Any) -> None:
    taken.put(list(service.record_index_gen()))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_several_loader_processes(start: str) -> None:
    service = RecordIndexService(batch_size=4, num_epochs=3, dataset_size=1000, num_workers=3)
    context = multiprocessing.get_context(start)
    assert isinstance(context, (ForkContext, SpawnContext))
    taken = context.SimpleQueue()
    loaders = [context.Process(target=take, args=(service, taken)) for _ in range(3)]
    for loader in loaders:
        loader.start()
    records = [index for _ in loaders for index in taken.get()]
    for loader in loaders:
        loader.join()
    assert Counter(records) == Counter(list(range(1000)) * 3)


def test_reported_as_shards() -> None:
    service = RecordIndexService(batch_size=4, dataset_size=12, num_minibatches_per_shard=1)
    for _ in service.record_index_gen():
        pass
    assert [service.report_batch_done() for _ in range(3)] == [True] * 3
    checkpoint = json.loads(service.get_shard_checkpoint())
    assert checkpoint["todo"] == checkpoint["doing"] == []


def test_with_several_loaders_a_record_counts_when_it_is_surely_done() -> None:
    service = RecordIndexService(batch_size=4, dataset_size=100, num_workers=2, num_minibatches_per_shard=25)
    list(service.record_index_gen())
    for _ in range(4):
        service.report_batch_done()
    # Two processes, each up to two batches ahead: which 16 were the first 16 is unknown.
    assert json.loads(service.get_shard_checkpoint())["doing"] == [[0, 100]]
    service.report_batch_done()
    assert json.loads(service.get_shard_checkpoint())["doing"] == [[4, 100]]
    for _ in range(20):
        service.report_batch_done()
    assert json.loads(service.get_shard_checkpoint())["doing"] == []


def test_reset_indices_start_from_the_beginning() -> None:
    service = RecordIndexService(batch_size=4, num_epochs=1, dataset_size=100, num_minibatches_per_shard=2)
    for _ in range(37):
        service.fetch_record_index()
    service.reset_dataset()
    assert list(service.record_index_gen()) == list(range(100))
    service.reset_dataset()
    assert list(service.record_index_gen()) == list(range(100))


def test_restored_indices_continue_from_checkpoint() -> None:
    service = RecordIndexService(batch_size=4, num_epochs=1, dataset_size=100, num_minibatches_per_shard=2)
    for _ in range(5):
        for _ in range(4):
            service.fetch_record_index()
        service.report_batch_done()
    content = service.get_shard_checkpoint()
    for _ in range(40):
        service.fetch_record_index()
    assert service.restore_shard_from_checkpoint(content)
    assert sorted(service.record_index_gen()) == list(range(20, 100))
    assert not service.restore_shard_from_checkpoint("nonsense")


def test_errors_reach_readers_of_records() -> None:
    service = RecordIndexService(batch_size=4, dataset_name="unknown")
    for _ in range(2):
        with pytest.raises(ShardError, match="The data set 'unknown' is not announced"):
            service.fetch_record_index()
