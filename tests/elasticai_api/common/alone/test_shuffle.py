"""Without a master: shuffled orders differ between epochs, are the same in every run, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticai_api.common.alone import AloneMaster
from elasticai_api.common.data_shard_service import DataShardService, build_data_shard_service
from elasticai_api.common.permutation import Permutation

Train = Callable[..., list[int]]


@pytest.mark.parametrize("argument", ["shuffle", "shuffle_shards"])
def test_shards_in_another_order_every_epoch(train: Train, argument: str) -> None:
    order: dict[str, Any] = {argument: True}
    service = build_data_shard_service(
        batch_size=2, num_epochs=2, dataset_size=100, num_minibatches_per_shard=1, **order
    )
    samples = train(service)
    first, second = samples[:100], samples[100:]
    assert first != list(range(100))
    assert first != second
    assert sorted(first) == sorted(second) == list(range(100))
    # Shards as a whole: the samples of one stay together.
    assert all(first[i] + 1 == first[i + 1] for i in range(0, 100, 2))


def test_the_same_order_in_every_run(train: Train) -> None:
    def run(seed: int) -> list[int]:
        master = AloneMaster(seed=seed)
        return train(
            DataShardService(
                batch_size=2,
                dataset_size=100,
                shuffle=True,
                num_minibatches_per_shard=1,
                master_client=master,
            )
        )

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_shuffled_records(train: Train) -> None:
    service = DataShardService(
        batch_size=5, num_epochs=2, dataset_size=100, shuffle_records=True, num_minibatches_per_shard=4
    )
    samples = train(service)
    for shard in range(0, 200, 20):
        part = samples[shard : shard + 20]
        start = shard % 100
        assert sorted(part) == list(range(start, start + 20))
        assert part != sorted(part)
    assert samples[:20] != samples[100:120]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 100, 1000])
def test_a_permutation_is_one_to_one(size: int) -> None:
    order = Permutation(size, "key")
    assert sorted(order[place] for place in range(size)) == list(range(size))


def test_a_permutation_of_a_huge_range() -> None:
    order = Permutation(2**63 - 1, "key")
    numbers = [order[place] for place in (0, 1, 2**62, 2**63 - 2)]
    assert len(set(numbers)) == 4
    assert all(0 <= number < 2**63 - 1 for number in numbers)
    with pytest.raises(IndexError):
        order[2**63 - 1]
