"""PyTorch: every sample once through a DataLoader with any number of loader processes; batches are reported in time."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from elasticai_api.common.data_shard_service import RecordIndexService, build_data_shard_service
from elasticai_api.errors import ShardError
from elasticai_api.pytorch.dataset import (
    ElasticBatchSampler,
    ElasticDataLoader,
    ElasticIterableDataset,
    ElasticSampler,
)


class Squares(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(index), torch.tensor(index * index)


def _service(**more: Any) -> Any:
    return build_data_shard_service(
        **{"batch_size": 4, "num_epochs": 2, "dataset_size": 50, "num_minibatches_per_shard": 3, **more}
    )


def _checkpoint(service: Any) -> Any:
    return json.loads(service.get_shard_checkpoint())


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_sample_of_every_epoch(num_workers: int, shuffle: bool) -> None:
    service = _service(shuffle=shuffle)
    seen: list[int] = []
    for numbers, squares in ElasticDataLoader(Squares(50), service, num_workers=num_workers):
        assert torch.equal(numbers * numbers, squares)
        seen += numbers.tolist()
    assert Counter(seen) == Counter(list(range(50)) * 2)
    assert _checkpoint(service)["doing"] == []
    assert service.get_current_epoch() == 2


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_is_reported_when_the_next_is_asked_for(num_workers: int) -> None:
    service = _service(num_epochs=1)
    done = 0
    for numbers, _ in ElasticDataLoader(Squares(50), service, num_workers=num_workers):
        left = _checkpoint(service)
        assert sum(end - start for start, end in left["todo"] + left["doing"]) == 50 - done
        done += len(numbers)
    assert done == 50


def test_loop_left_early_reports_trained_samples() -> None:
    service = _service(num_epochs=1)
    for step, _ in enumerate(ElasticDataLoader(Squares(50), service)):
        if step == 5:
            break
    left = _checkpoint(service)
    assert sum(end - start for start, end in left["todo"] + left["doing"]) == 30


def test_reporting_by_hand() -> None:
    service = _service(num_epochs=1)
    for numbers, _ in ElasticDataLoader(Squares(50), service, report=False):
        assert _checkpoint(service)["doing"]
        service.report_batch_done(len(numbers))
    assert _checkpoint(service)["doing"] == []


def test_samplers_yield_all_indices() -> None:
    assert list(ElasticSampler(_service())) == list(range(50)) * 2
    batches = list(ElasticBatchSampler(_service(num_epochs=1)))
    assert batches[0] == [0, 1, 2, 3]
    assert batches[-1] == [48, 49]


def test_in_a_loader_of_ones_own() -> None:
    service = _service()
    loader = DataLoader(Squares(50), batch_sampler=ElasticBatchSampler(service), num_workers=2)
    seen = [number for numbers, _ in loader for number in numbers.tolist()]
    assert seen == list(range(50)) * 2


def test_loader_rejects_settings_of_the_service() -> None:
    with pytest.raises(ShardError, match="batch_size, shuffle: that is for the service to say"):
        ElasticDataLoader(Squares(50), _service(), batch_size=3, shuffle=True)
    with pytest.raises(ShardError, match="in_order=False"):
        ElasticDataLoader(Squares(50), _service(), in_order=False)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream(num_workers: int) -> None:
    service = RecordIndexService(
        batch_size=4, num_epochs=2, dataset_size=50, shuffle=True, num_workers=num_workers
    )
    loader = DataLoader(ElasticIterableDataset(Squares(50), service), batch_size=4, num_workers=num_workers)
    seen: list[int] = []
    for numbers, squares in loader:
        assert torch.equal(numbers * numbers, squares)
        seen += numbers.tolist()
        service.report_batch_done(len(numbers))
    assert Counter(seen) == Counter(list(range(50)) * 2)
    left = _checkpoint(service)
    assert left["todo"] == left["doing"] == []


@pytest.mark.parametrize("num_workers", [0, 2])
def test_epochs_of_a_loader_that_makes_its_own_service(num_workers: int) -> None:
    loader = ElasticDataLoader(
        Squares(50),
        batch_size=4,
        num_epochs=2,
        shuffle=True,
        num_minibatches_per_shard=2,
        num_workers=num_workers,
    )
    epochs = []
    for epoch in loader.epochs():
        seen: list[int] = []
        for numbers, squares in epoch:
            assert torch.equal(numbers * numbers, squares)
            seen += numbers.tolist()
        assert sorted(seen) == list(range(50))
        epochs.append((epoch.number, seen))
    assert [number for number, _ in epochs] == [0, 1]
    assert epochs[0][1] != epochs[1][1]
    left = _checkpoint(loader.service)
    assert left["todo"] == left["doing"] == []
