"""Without a master: what failed is tried again, only what was not done of it, and not forever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticai_api.common.data_shard_service import DataShardService, build_data_shard_service
from elasticai_api.errors import ShardError

Train = Callable[..., list[int]]


def _service() -> DataShardService:
    return build_data_shard_service(batch_size=5, num_epochs=1, dataset_size=40, num_minibatches_per_shard=4)


def test_the_rest_of_a_shard_comes_back() -> None:
    service = _service()
    service.fetch_shard()
    service.report_batch_done()
    assert service.report_batch_done(err_msg="no such file")
    shard = service.fetch_shard()
    assert shard is not None
    assert (shard.start, shard.end) == (5, 20)


def test_batches_behind_the_failed_one_are_not_reported() -> None:
    """Their shard is leased to another worker by then, and they must not be counted on the next one."""
    service = _service()
    service.fetch_shard()
    service.report_batch_done(err_msg="no such file")
    again = service.fetch_shard()
    for _ in range(3):
        assert not service.report_batch_done()
    assert '"doing": [[0, 20]]' in service.get_shard_checkpoint()
    assert again is not None
    for _ in range(4):
        finished = service.report_batch_done()
    assert finished
    assert '"doing": []' in service.get_shard_checkpoint()


def test_a_shard_that_always_fails() -> None:
    service = _service()
    for _ in range(2):
        service.fetch_shard()
        service.report_all_task_error("the disk is broken")
    service.fetch_shard()
    with pytest.raises(ShardError, match=r"samples 0 to 19 .* failed 3 times: the disk is broken"):
        service.report_all_task_error("the disk is broken")


def test_all_shards_are_given_back(train: Train) -> None:
    service = _service()
    service.fetch_shard()
    service.fetch_shard()
    service.report_all_task_error("interrupted")
    assert sorted(train(service)) == list(range(40))
