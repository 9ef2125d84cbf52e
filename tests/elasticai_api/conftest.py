"""Programs in miniature: no job in the environment unless a test makes one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticai_api.common.constants import PodEnv
from elasticai_api.common.shards import DataShardService

VARIABLES = (
    PodEnv.MASTER_ADDR,
    PodEnv.DLROVER_MASTER_ADDR,
    PodEnv.TOKEN_FILE,
    PodEnv.WORKER_ID,
    PodEnv.WORKER_TYPE,
    PodEnv.PATIENCE,
)


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def train() -> Callable[..., list[int]]:
    """Goes through what a service gives, reports every batch, and returns the samples in their order."""

    def run(service: DataShardService, *, shards: int | None = None) -> list[int]:
        samples: list[int] = []
        batch = 0
        while shards is None or shards > 0:
            shard = service.fetch_shard()
            if shard is None:
                break
            for index in shard.indices or range(shard.start, shard.end):
                samples.append(index)
                batch += 1
                if batch == service.batch_size:
                    service.report_batch_done()
                    batch = 0
            shards = None if shards is None else shards - 1
        if batch:
            service.report_batch_done(batch)
        return samples

    return run
