"""Without a master: a checkpoint of shards holds exactly what is not done, and a restored one goes on with that."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from elasticai_api.common.data_shard_service import DataShardService, build_data_shard_service

Train = Callable[..., list[int]]


def _service(**more: bool) -> DataShardService:
    return build_data_shard_service(
        batch_size=5,
        num_epochs=2,
        dataset_size=60,
        num_minibatches_per_shard=2,
        dataset_name="numbers",
        **more,  # type: ignore[arg-type]
    )


def test_checkpoint_lists_pending_and_current_ranges(train: Train) -> None:
    service = _service()
    train(service, shards=2)
    service.fetch_shard()
    service.report_batch_done()
    assert json.loads(service.get_shard_checkpoint()) == {
        "dataset_name": "numbers",
        "todo": [[30, 60]],
        "doing": [[25, 30]],
        "current_epoch": 1,
        "num_epochs": 2,
        "batch_size": 5,
        "dataset_size": 60,
        "shuffle_shards": False,
    }


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_restored_one_goes_on(train: Train, shuffle: bool) -> None:
    first = _service(shuffle=shuffle)
    before = train(first, shards=3)
    content = first.get_shard_checkpoint()
    later = train(first, shards=2)

    second = _service(shuffle=shuffle)
    assert second.restore_shard_from_checkpoint(content)
    after = train(second)
    assert sorted(before + after[: 60 - len(before)]) == list(range(60))
    assert sorted(after[60 - len(before) :]) == list(range(60))
    assert set(later) <= set(after[: 60 - len(before)])


def test_back_in_the_same_program(train: Train) -> None:
    service = _service()
    train(service, shards=2)
    content = service.get_shard_checkpoint()
    service.fetch_shard()
    assert service.restore_shard_from_checkpoint(content)
    assert train(service) == [*range(20, 60), *range(60)]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no json",
        "[]",
        '{"dataset_name": "numbers"}',
        '{"dataset_name": "numbers", "dataset_size": 61, "current_epoch": 1, "todo": [], "doing": []}',
        '{"dataset_name": "other", "dataset_size": 60, "current_epoch": 1, "todo": [], "doing": []}',
        '{"dataset_name": "numbers", "dataset_size": 60, "current_epoch": 1, "todo": [[0, 61]], "doing": []}',
    ],
)
def test_invalid_checkpoint_is_rejected_without_effect(train: Train, content: str) -> None:
    service = _service()
    train(service, shards=1)
    assert not service.restore_shard_from_checkpoint(content)
    assert train(service) == [*range(10, 60), *range(60)]
