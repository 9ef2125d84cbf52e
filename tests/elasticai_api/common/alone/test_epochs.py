"""Without a master: every sample in every epoch once, in shards of the size that was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from elasticai_api.common.data_shard_service import build_data_shard_service

Train = Callable[..., list[int]]


@pytest.mark.parametrize("minibatches", [0, 1, 3])
@pytest.mark.parametrize("shuffle_shards", [False, True])
def test_every_sample_in_every_epoch(train: Train, minibatches: int, shuffle_shards: bool) -> None:
    service = build_data_shard_service(
        batch_size=4,
        num_epochs=3,
        dataset_size=50,
        shuffle_shards=shuffle_shards,
        num_minibatches_per_shard=minibatches,
    )
    samples = train(service)
    assert Counter(samples) == Counter(list(range(50)) * 3)
    for epoch in range(3):
        assert sorted(samples[50 * epoch : 50 * epoch + 50]) == list(range(50))


def test_shards_have_the_size_asked_for() -> None:
    service = build_data_shard_service(
        batch_size=4, num_epochs=1, dataset_size=30, num_minibatches_per_shard=2
    )
    shards = [(s.start, s.end) for s in iter(service.fetch_shard, None)]
    assert shards == [(0, 8), (8, 16), (16, 24), (24, 30)]


def test_one_epoch_if_none_is_given(train: Train) -> None:
    assert train(build_data_shard_service(batch_size=4, dataset_size=10)) == list(range(10))


def test_the_end_stays_the_end(train: Train) -> None:
    service = build_data_shard_service(batch_size=4, num_epochs=1, dataset_size=10)
    train(service)
    assert service.fetch_shard() is None
    assert service.fetch_shard() is None


def test_the_current_epoch() -> None:
    service = build_data_shard_service(
        batch_size=5, num_epochs=2, dataset_size=10, num_minibatches_per_shard=1
    )
    epochs = [service.get_current_epoch()]
    while service.fetch_shard() is not None:
        epochs.append(service.get_current_epoch())
    assert epochs == [0, 1, 1, 2, 2]
    assert service.get_current_epoch() == 2


def test_a_huge_data_set_costs_nothing() -> None:
    service = build_data_shard_service(
        batch_size=1, num_epochs=2, dataset_size=2**62, shuffle_shards=True, num_minibatches_per_shard=1
    )
    starts = {service.fetch_shard().start for _ in range(100)}  # type: ignore[union-attr]
    assert len(starts) == 100
    assert max(starts) > 2**55


def test_drop_leaves_out_what_makes_no_batch(train: Train) -> None:
    service = build_data_shard_service(batch_size=4, num_epochs=2, dataset_size=30, remainder="drop")
    assert train(service) == list(range(28)) * 2
    assert service.get_minibatch_count_per_epoch() == 7


def test_fill_leaves_out_nothing(train: Train) -> None:
    service = build_data_shard_service(batch_size=4, num_epochs=1, dataset_size=30, remainder="fill")
    assert train(service) == list(range(30))


def test_reset_begins_again(train: Train) -> None:
    service = build_data_shard_service(
        batch_size=5, num_epochs=2, dataset_size=20, num_minibatches_per_shard=1
    )
    train(service, shards=6)
    assert service.get_current_epoch() == 2
    service.reset_dataset()
    assert service.get_current_epoch() == 0
    assert train(service) == list(range(20)) * 2
