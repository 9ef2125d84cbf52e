"""Prefetched shards are handed out one at a time like all others, and are given back when not used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.common.shards import DataShardService
from elasticai_api.common.supply import IDLE_SECONDS, Supply
from elasticdl.master.commands.nodes import ScaleRole
from elasticdl.master.commands.programs import ResetDataset
from elasticdl.platforms.platform import NodePhase


@pytest.fixture(autouse=True)
def four_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supply, "wanted", lambda self: 4)
    # More when there are none left, and not before: see test_background_fetch.py.
    monkeypatch.setattr(Supply, "runs_low", lambda self: False)


def build(**changes: Any) -> DataShardService:
    said = {"batch_size": 2, "dataset_size": 64, "num_epochs": 1, "num_minibatches_per_shard": 1}
    return build_data_shard_service(**{**said, "dataset_name": "d", **changes})


def start(service: DataShardService) -> int:
    shard = service.fetch_shard()
    assert shard is not None
    return int(shard.start)


def test_several_in_one_call_each_handed_out_once(job: Any, train: Callable[..., list[int]]) -> None:
    service = build()
    assert train(service) == list(range(64))
    assert job.done("d") == 64
    # Few are left at the end, so that they are leased one by one.
    assert job.service.fetches < 24


def test_fetch_repeated_after_lost_reply_returns_same_shards(job: Any) -> None:
    service = build()
    job.service.answers_to_lose = 1
    assert [start(service) for _ in range(8)] == [0, 2, 4, 6, 8, 10, 12, 14]
    assert job.service.fetches == 3
    assert len(job.held_by("worker-0")) == 8


def test_prefetched_shards_of_killed_worker_are_requeued_in_order(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = build()
    start(killed)
    killed.report_batch_done()
    killed.flush()
    monkeypatch.setenv("WORKER_ID", "1")
    other = build()
    assert start(other) == 8
    job.observe("worker-0", NodePhase.FAILED, "killed")
    assert [start(other) for _ in range(7)] == [10, 12, 14, 2, 4, 6, 16]


def test_a_service_that_ends_gives_them_back(job: Any) -> None:
    service = build()
    start(service)
    assert len(job.held_by("worker-0")) == 4
    service.close()
    # The one that was handed out may be done still, for all the master knows.
    assert job.held_by("worker-0") == [(0, 2)]


def test_idle_prefetched_shards_are_returned(job: Any) -> None:
    service = build()
    now = 0.0
    service._supply._clock = lambda: now
    start(service)
    service.report_batch_done()
    service.flush()
    assert job.held_by("worker-0") == [(2, 4), (4, 6), (6, 8)]
    start(service)
    now += IDLE_SECONDS
    service.report_batch_done()
    service.flush()
    assert job.held_by("worker-0") == []
    assert start(service) == 4


def test_reset_data_set_restarts_from_its_beginning(job: Any, train: Callable[..., list[int]]) -> None:
    service = build()
    start(service)
    service.reset_dataset()
    assert train(service) == list(range(64))
    assert job.done("d") == 64


def test_a_checkpoint_holds_them(job: Any, train: Callable[..., list[int]]) -> None:
    service = build()
    train(service, shards=2)
    checkpoint = service.get_shard_checkpoint()
    train(service, shards=3)
    assert service.restore_shard_from_checkpoint(checkpoint)
    assert sorted(train(service)) == list(range(4, 64))
    assert job.done("d") == 64


def test_prefetched_shards_are_void_after_a_reset_by_another_worker(
    job: Any, train: Callable[..., list[int]]
) -> None:
    service = build()
    start(service)
    job.do(lambda master: master.do(ResetDataset(dataset="d")))
    service.report_batch_done()
    service.flush()
    assert train(service) == list(range(64))
    assert job.done("d") == 64


def test_the_epoch_is_that_of_the_shards_handed_out(job: Any) -> None:
    service = build(dataset_size=6, num_epochs=20)
    epochs = []
    for _ in range(9):
        start(service)
        epochs.append(service.get_current_epoch())
        service.report_batch_done()
    assert epochs == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_drained_worker_gets_no_more_shards(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_ID", "1")
    service = build()
    assert start(service) == 0
    job.do(lambda master: master.do(ScaleRole(role="worker", target=1)))
    for _ in range(3):
        start(service)
    assert service.fetch_shard() is None
