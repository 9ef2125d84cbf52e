"""What cannot be meant is refused where it is said, in words that name the argument."""

from __future__ import annotations

from typing import Any

import pytest

from elasticai_api.common.data_shard_service import DataShardService, build_data_shard_service
from elasticai_api.errors import ShardError

GOOD: dict[str, Any] = {"batch_size": 4, "num_epochs": 2, "dataset_size": 100}


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("dataset_size", 0, "dataset_size must be at least 1, not 0."),
        ("dataset_size", -5, "dataset_size must be at least 1, not -5."),
        ("dataset_size", 2**63, "dataset_size must be at most 4611686018427387904, not 9223372036854775808."),
        ("dataset_size", 1.5, "dataset_size must be a whole number, not 1.5."),
        ("dataset_size", "100", "dataset_size must be a whole number, not '100'."),
        ("batch_size", 0, "batch_size must be at least 1, not 0."),
        ("batch_size", 2**31, "batch_size must be at most 2147483647, not 2147483648."),
        ("num_epochs", 0, "num_epochs must be at least 1, not 0."),
        ("num_minibatches_per_shard", -1, "num_minibatches_per_shard must be at least 0, not -1."),
        ("remainder", "keep", "remainder must be 'fill' or 'drop', not 'keep'."),
        ("task_type", 4, "task_type must be TRAINING, EVALUATION or PREDICTION, not 4."),
        ("out_of_order", -1, "out_of_order must be at least 0, not -1."),
    ],
)
def test_invalid_argument_is_refused_by_name(argument: str, value: Any, words: str) -> None:
    with pytest.raises(ShardError) as caught:
        build_data_shard_service(**{**GOOD, argument: value})
    assert str(caught.value) == words


def test_nothing_left_after_dropping() -> None:
    with pytest.raises(ShardError, match="its 3 samples do not make one batch of 4"):
        build_data_shard_service(batch_size=4, dataset_size=3, remainder="drop")


def test_unannounced_data_set_raises() -> None:
    service = build_data_shard_service(batch_size=4, dataset_name="mine")
    with pytest.raises(ShardError, match="The data set 'mine' is not announced"):
        service.fetch_shard()
    with pytest.raises(ShardError, match="The size of the data set 'mine' was not given"):
        service.get_minibatch_count_per_epoch()


def test_a_batch_of_less_than_nothing() -> None:
    service = DataShardService(**GOOD)
    service.fetch_shard()
    with pytest.raises(ShardError, match="batch_size must be at least 1, not -1"):
        service.report_batch_done(-1)
