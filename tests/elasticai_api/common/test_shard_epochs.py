"""Epochs of shards as a loop: each sample once in every epoch, reported when the next batch is asked for."""

from __future__ import annotations

import json
from typing import Any

from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.common.shards import DataShardService
from elasticdl.platforms.platform import NodePhase


def _service(**more: Any) -> DataShardService:
    return build_data_shard_service(
        **{"batch_size": 4, "num_epochs": 2, "dataset_size": 50, "num_minibatches_per_shard": 3, **more}
    )


def _left(service: DataShardService) -> int:
    checkpoint = json.loads(service.get_shard_checkpoint())
    return sum(end - start for start, end in checkpoint["todo"] + checkpoint["doing"])


def test_batches_of_an_epoch_do_not_reach_into_the_next() -> None:
    service = _service(shuffle=True)
    epochs = [(epoch.number, list(epoch.batches())) for epoch in service.epochs()]
    assert [number for number, _ in epochs] == [0, 1]
    for _, batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(50))
        assert [len(batch) for batch in batches] == [4] * 12 + [2]
    assert epochs[0] != epochs[1]


def test_batch_is_reported_when_next_is_asked_for() -> None:
    service = _service(num_epochs=1)
    done = 0
    for epoch in service.epochs():
        for batch in epoch.batches():
            assert _left(service) == 50 - done
            done += len(batch)
    assert (done, _left(service)) == (50, 0)


def test_batches_reported_by_the_program_are_not_reported_twice() -> None:
    service = _service(num_epochs=1)
    for epoch in service.epochs():
        for batch in epoch.batches(report=False):
            before = _left(service)
            service.report_batch_done(len(batch))
            assert _left(service) == before - len(batch)
    assert _left(service) == 0


def test_shards_of_an_epoch_are_reported_by_the_program() -> None:
    service = _service()
    for epoch in service.epochs():
        for shard in epoch:
            service.report_batch_done(shard.end - shard.start)
    assert _left(service) == 0


def test_shards_of_a_lost_worker_are_trained_by_the_one_that_waits(job: Any) -> None:
    """The last shard of the data is held by a worker that dies while this one waits at the end of its epoch."""
    job.observe("worker-0", NodePhase.RUNNING)
    job.observe("worker-1", NodePhase.RUNNING)
    service = _service(num_epochs=1)
    seen: list[int] = []
    for epoch in service.epochs():
        for batch in epoch.batches():
            seen += batch
            if len(seen) == 4:
                # Another worker takes what is left, without training on it.
                other = _other_worker(job)
                assert other.fetch_shard() is not None
                job.observe("worker-1", NodePhase.FAILED, "killed")
    assert sorted(seen) == list(range(50))
    service.flush()
    assert job.done(service.dataset_name) == 50


def _other_worker(job: Any) -> DataShardService:
    import os

    os.environ["WORKER_ID"] = "1"
    try:
        return _service(num_epochs=1)
    finally:
        os.environ["WORKER_ID"] = "0"
