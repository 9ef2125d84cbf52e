"""An answer that gets lost on its way is given again: no shard is skipped, none is counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from elasticai_api.common.data_shard_service import build_data_shard_service


@pytest.mark.parametrize("token", [True, False])
def test_every_sample_still_comes_once(
    job: Any, train: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch, token: bool
) -> None:
    if not token:
        monkeypatch.setenv("DLROVER_MASTER_ADDR", job.public_address)
        monkeypatch.delenv("ELASTICDL_TOKEN_FILE")
    service = build_data_shard_service(
        batch_size=4, num_epochs=1, dataset_size=48, num_minibatches_per_shard=3, dataset_name="d"
    )
    seen: list[int] = []
    for _ in range(4):
        # Of the call for the shard; and of the report of its end.
        job.service.answers_to_lose = 1
        shard = service.fetch_shard()
        assert shard is not None
        seen += range(shard.start, shard.end)
        job.service.answers_to_lose = 1
        service.report_batch_done(12)
        service.flush()
    assert Counter(seen) == Counter(range(48))
    assert service.fetch_shard() is None
    assert job.done("d") == 48


def test_an_error_is_counted_once(job: Any) -> None:
    service = build_data_shard_service(
        batch_size=4, num_epochs=1, dataset_size=48, num_minibatches_per_shard=3, dataset_name="d"
    )
    service.fetch_shard()
    job.service.answers_to_lose = 1
    service.report_all_task_error("no such file")
    shard = service.fetch_shard()
    assert shard is not None
    assert (shard.start, shard.end) == (0, 12)
