"""Reports cost the training nothing: a few a second inside a shard, however many batches there are."""

from __future__ import annotations

import time
from typing import Any

import pytest

from elasticai_api.common.data_shard_service import build_data_shard_service


def test_reports_of_many_batches_are_rate_limited(job: Any) -> None:
    service = build_data_shard_service(
        batch_size=1, dataset_size=100_000, num_minibatches_per_shard=100_000, dataset_name="d"
    )
    service.fetch_shard()
    before = time.monotonic()
    for _ in range(20_000):
        service.report_batch_done()
    service.flush()
    seconds = time.monotonic() - before
    assert job.done("d") == 20_000
    # The first at once, then at most five a second, then the last.
    assert job.service.reports <= 2 + 5 * seconds


def test_many_shards_few_reports(job: Any) -> None:
    service = build_data_shard_service(
        batch_size=1, dataset_size=2_000, num_minibatches_per_shard=1, dataset_name="d"
    )
    before = time.monotonic()
    for _ in range(1_000):
        service.fetch_shard()
        service.report_batch_done()
    service.flush()
    seconds = time.monotonic() - before
    assert job.done("d") == 1_000
    assert job.service.reports <= 2 + 5 * seconds


def test_the_more_workers_the_fewer_reports_of_each(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Hours between two reports: none comes by itself but the first.
    monkeypatch.setenv("WORKER_NUM", str(10**6))
    service = build_data_shard_service(
        batch_size=1, dataset_size=100, num_minibatches_per_shard=10, dataset_name="d"
    )
    while service.fetch_shard() is not None:
        for _ in range(10):
            service.report_batch_done()
    assert job.done("d") == 100
    # The first, and those before it is taken for the end that there is no shard any more.
    assert job.service.reports <= 3


@pytest.mark.parametrize(("hours_ago", "reported"), [(10, False), (20, True)])
def test_one_that_is_due_before_long_goes_along_with_a_call_for_a_shard(
    job: Any, monkeypatch: pytest.MonkeyPatch, hours_ago: int, reported: bool
) -> None:
    # A report every 28 hours.
    monkeypatch.setenv("WORKER_NUM", str(10**6))
    service = build_data_shard_service(
        batch_size=1, dataset_size=100, num_minibatches_per_shard=2, dataset_name="d"
    )
    service.fetch_shard()
    service.report_batch_done()
    service.flush()
    reports = service._reports
    reports._sent_at -= hours_ago * 3600
    service.report_batch_done()
    service.fetch_shard()
    with reports._moved:
        # It is not sent by itself: the test would wait for hours.
        assert (
            reports._moved.wait_for(lambda: not reports._pending() and not reports._sending, 60 * reported)
            == reported
        )
    assert job.done("d") == 1 + reported


def test_every_end_of_a_shard_is_reported(job: Any) -> None:
    service = build_data_shard_service(
        batch_size=1, dataset_size=50, num_minibatches_per_shard=2, dataset_name="d"
    )
    while service.fetch_shard() is not None:
        service.report_batch_done()
        service.report_batch_done()
        service.flush()
    assert job.done("d") == 50
    assert job.service.reports >= 25
