"""The way in for training programs: `build_data_shard_service`, at the place where programs import it from.

What a service does is in shards.py, what it does for programs that want single records in record_index.py.
"""

from __future__ import annotations

from elasticai_api.common.record_index import RecordIndexService
from elasticai_api.common.shards import EVALUATION, PREDICTION, TRAINING, DataShardService

__all__ = [
    "EVALUATION",
    "PREDICTION",
    "TRAINING",
    "DataShardService",
    "RecordIndexService",
    "build_data_shard_service",
]


def build_data_shard_service(
    batch_size: int,
    num_epochs: int | None = None,
    dataset_size: int | None = None,
    shuffle: bool = False,
    shuffle_shards: bool = False,
    task_type: int = TRAINING,
    num_minibatches_per_shard: int = 0,
    dataset_name: str | None = None,
    remainder: str | None = None,
    *,
    out_of_order: int = 0,
) -> DataShardService:
    """A service for the shards of one data set. The arguments are those of `DataShardService`."""
    return DataShardService(
        batch_size=batch_size,
        num_epochs=num_epochs,
        dataset_size=dataset_size,
        shuffle=shuffle,
        shuffle_shards=shuffle_shards,
        task_type=task_type,
        num_minibatches_per_shard=num_minibatches_per_shard,
        dataset_name=dataset_name,
        remainder=remainder,
        out_of_order=out_of_order,
    )
