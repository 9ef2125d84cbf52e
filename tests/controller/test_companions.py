"""What runs beside the controller cannot end it."""

from __future__ import annotations

import asyncio

import pytest

from elasticdl.controller.process import run_companion
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import find_access
from tests.catalog.api_server import ApiServer
from tests.catalog.api_server import api as api


class Ending:
    """Fails, or ends without a failure."""

    name = "the companion"

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.has_run = asyncio.Event()

    async def run(self, cluster: Cluster) -> None:
        self.has_run.set()
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [RuntimeError("broken"), None])
def test_companion_that_ends_leaves_the_controller_running(
    api: ApiServer, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    unsynced = [["nodes"], []]

    async def main() -> None:
        companion = Ending(error)
        async with Cluster(find_access(), patience=1.0) as cluster:
            running = asyncio.create_task(
                run_companion(companion, cluster, unsynced=lambda: unsynced.pop(0) if unsynced else [])
            )
            await companion.has_run.wait()
            assert not unsynced, "not before the controller knows the cluster"
            for _ in range(3):
                await asyncio.sleep(0)
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
    logged = "The controller goes on without the companion" in caplog.text
    assert logged == (error is not None)
