"""A master comes back without its journal: programs tell it what it has forgotten, and go on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from elasticai_api.common.data_shard_service import DataShardService, build_data_shard_service
from elasticdl.master.commands.recovery import FinishReclaim

Train = Callable[..., list[int]]


def service(**arguments: Any) -> DataShardService:
    wanted = {"batch_size": 4, "num_epochs": 3, "dataset_size": 50, "num_minibatches_per_shard": 2}
    return build_data_shard_service(**{**wanted, "dataset_name": "d", **arguments})


def come_back(job: Any, kept: str) -> None:
    job.stop()
    job.kept = kept
    job.start()


def finish_recovery(job: Any, workers: int) -> None:
    """Ends the recovery once so many workers have reported."""
    pause = threading.Event()
    while len(job.do(lambda master: master.state.reclaim.reported)) < workers:
        pause.wait(0.02)
    job.do(lambda master: master.do(FinishReclaim()))


def rest(train: Train, worker: DataShardService) -> tuple[threading.Thread, list[int]]:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(train(worker)))
    thread.start()
    return thread, found


@pytest.mark.parametrize("remembered", [0, 2, 9])
def test_progress_reported_after_recovery_is_not_repeated(job: Any, train: Train, remembered: int) -> None:
    mine = service()
    done = train(mine, shards=remembered) if remembered else []
    kept = job.do(lambda master: master.record())
    # Into the next epoch, and a shard that is begun.
    done += train(mine, shards=8)
    shard = mine.fetch_shard()
    assert shard is not None
    mine.report_batch_done(4)
    mine.flush()
    done += range(shard.start, shard.start + 4)
    come_back(job, kept)
    mine.report_batch_done(shard.end - shard.start - 4)
    done += range(shard.start + 4, shard.end)
    thread, found = rest(train, mine)
    finish_recovery(job, 1)
    thread.join()
    mine.flush()
    assert Counter(done + found) == Counter(list(range(50)) * 3)
    assert job.done("d") == 150
    assert job.do(lambda master: [master.state.ledger.again("d", e) for e in range(3)]) == [0, 0, 0]


def test_data_set_missing_in_snapshot_is_recovered_from_worker(job: Any, train: Train) -> None:
    kept = job.do(lambda master: master.record())
    mine = service()
    done = train(mine, shards=3)
    come_back(job, kept)
    thread, found = rest(train, mine)
    finish_recovery(job, 1)
    thread.join()
    assert Counter(done + found) == Counter(list(range(50)) * 3)


def test_progress_of_absent_worker_is_repeated(
    job: Any, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = service(num_epochs=1)
    monkeypatch.setenv("WORKER_ID", "1")
    theirs = service(num_epochs=1)
    kept = job.do(lambda master: master.record())
    # Shards come in order here: two of eight samples, then mine.
    lost = train(theirs, shards=2)
    done = train(mine, shards=1)
    come_back(job, kept)
    thread, found = rest(train, mine)
    finish_recovery(job, 1)
    thread.join()
    assert Counter(done + found) == Counter(range(50))
    assert len(lost) == 16
    assert job.do(lambda master: master.state.ledger.again("d", 0)) == 16
