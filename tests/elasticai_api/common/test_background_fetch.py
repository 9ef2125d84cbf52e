"""A program that uses many shards gets more beside its work, and so does not feel that its master is busy."""

from __future__ import annotations

import threading

import pytest

from elasticai_api.common.alone import AloneMaster
from elasticai_api.common.master import FetchedShard
from elasticai_api.common.shards import DataShardService
from elasticai_api.common.supply import Supply
from elasticai_api.errors import MasterError


class BusyMaster(AloneMaster):
    """Over a network; answers when it has the time."""

    remote = True

    def __init__(self) -> None:
        super().__init__()
        self.has_time = threading.Event()
        self.has_time.set()
        self.gone = False
        self.asked: list[int] = []

    def fetch(self, dataset: str, count: int) -> list[FetchedShard]:
        self.asked.append(count)
        assert self.has_time.wait(60)
        if self.gone:
            raise MasterError("The master is gone.")
        return [shard for _ in range(count) for shard in super(BusyMaster, self).fetch(dataset, 1)]


def build(master: BusyMaster) -> DataShardService:
    return DataShardService(
        batch_size=2, dataset_size=64, num_minibatches_per_shard=1, dataset_name="d", master_client=master
    )


def start(service: DataShardService) -> int:
    shard = service.fetch_shard()
    assert shard is not None
    return int(shard.start)


def use(monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    """So many in half a second."""
    monkeypatch.setattr(Supply, "wanted", lambda self: shards)


def test_prefetched_shards_need_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, 4)
    master = BusyMaster()
    service = build(master)
    assert start(service) == 0
    master.has_time.clear()
    # With the second, half of them are used up, and more are asked for.
    assert [start(service) for _ in range(3)] == [2, 4, 6]
    master.has_time.set()
    assert start(service) == 8
    assert master.asked == [4, 4]


def test_slow_consumer_fetches_one_shard_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, 1)
    master = BusyMaster()
    service = build(master)
    assert [start(service) for _ in range(5)] == [0, 2, 4, 6, 8]
    assert master.asked == [1] * 5


def test_background_fetch_error_is_raised_by_next_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, 4)
    master = BusyMaster()
    service = build(master)
    assert start(service) == 0
    master.gone = True
    assert [start(service) for _ in range(3)] == [2, 4, 6]
    with pytest.raises(MasterError, match="gone"):
        service.fetch_shard()
