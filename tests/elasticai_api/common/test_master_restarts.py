"""A master that is killed and comes back only makes calls wait; one that never does is given up with clear words."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from elasticai_api.common.data_shard_service import DataShardService, build_data_shard_service
from elasticai_api.errors import MasterError

Train = Callable[..., list[int]]


def _service() -> DataShardService:
    return build_data_shard_service(
        batch_size=4, num_epochs=2, dataset_size=50, num_minibatches_per_shard=3, dataset_name="d"
    )


def test_fetching_waits_for_it(job: Any, train: Train) -> None:
    service = _service()
    before = train(service, shards=3)
    service.flush()
    job.stop()
    found: list[list[int]] = []
    program = threading.Thread(target=lambda: found.append(train(service)))
    program.start()
    job.start()
    program.join()
    service.flush()
    assert Counter(before + found[0]) == Counter(list(range(50)) * 2)
    assert job.done("d") == 100


def test_a_held_call_outlasts_it(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = build_data_shard_service(batch_size=4, dataset_size=4, dataset_name="d")
    mine.fetch_shard()
    monkeypatch.setenv("WORKER_ID", "1")
    theirs = build_data_shard_service(batch_size=4, dataset_size=4, dataset_name="d")
    found: list[Any] = []
    program = threading.Thread(target=lambda: found.append(theirs.fetch_shard()))
    program.start()
    while not job.do(lambda master: bool(master.work)):
        pass
    job.stop()
    job.start()
    mine.report_batch_done()
    program.join()
    assert found == [None]
    assert job.done("d") == 4


def test_reports_wait_for_it_without_the_training(job: Any) -> None:
    service = _service()
    service.fetch_shard()
    job.stop()
    for _ in range(3):
        service.report_batch_done()
    job.start()
    service.flush()
    assert job.done("d") == 12


def test_fetch_from_absent_master_fails_after_timeout(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICAI_MASTER_PATIENCE", "0.2")
    service = _service()
    job.stop()
    try:
        with pytest.raises(
            MasterError, match=r"has been away for 0\.2 seconds .*set by ELASTICAI_MASTER_PATIENCE"
        ):
            service.fetch_shard()
    finally:
        job.start()


def test_undeliverable_report_raises_in_the_program(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICAI_MASTER_PATIENCE", "0.2")
    service = _service()
    service.fetch_shard()
    job.stop()
    try:
        service.report_batch_done()
        with pytest.raises(MasterError, match="has been away"):
            service.flush()
        with pytest.raises(MasterError, match="has been away"):
            service.report_batch_done()
    finally:
        job.start()


def test_close_ends_blocked_fetch(job: Any) -> None:
    service = _service()
    job.stop()
    failed: list[BaseException] = []

    def fetch() -> None:
        try:
            service.fetch_shard()
        except MasterError as error:
            failed.append(error)

    program = threading.Thread(target=fetch)
    program.start()
    service.close()
    program.join()
    job.start()
    assert "has been closed" in str(failed[0])
