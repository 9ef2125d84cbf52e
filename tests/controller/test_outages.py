"""A minute in which the API server answers with errors, or not at all: the controller goes on where it was.

The whole controller, with its informers and its election, on a fake clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from elasticdl.controller.controller import Controller
from elasticdl.platforms.kubernetes.client import ClusterAway, ClusterError, TransportError
from tests.controller.builders import NOW, node, training_job
from tests.controller.memory_cluster import MemoryCluster
from tests.master.fake_time import FakeTime

Trouble = Callable[[str], Awaitable[None]]
# What the command has for a request without an answer.
_PATIENCE_SECONDS = 15.0
_WRITES = ("create", "update")


def answered(status: int, *verbs: str) -> Trouble:
    async def trouble(verb: str) -> None:
        if not verbs or verb in verbs:
            raise ClusterError(f"refused with {status}", status=status, reason="Test")

    return trouble


async def overloaded(verb: str) -> None:
    """The client has waited as the server has asked it to (429), for as long as it has patience."""
    await asyncio.sleep(_PATIENCE_SECONDS)
    raise ClusterAway("too many requests", asks_for=1.0)


async def silent(verb: str) -> None:
    if verb == "watch":
        raise TransportError("the connection is lost")
    await asyncio.sleep(_PATIENCE_SECONDS)
    raise ClusterAway("the cluster does not answer")


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(overloaded, id="429"),
        pytest.param(answered(409, *_WRITES), id="409"),
        pytest.param(answered(410, "list", "watch"), id="410"),
        pytest.param(answered(500), id="500"),
        pytest.param(silent, id="nothing"),
    ],
)
def test_controller_goes_on_after_a_minute_of_trouble(trouble: Trouble) -> None:
    async def scenario() -> None:
        cluster = MemoryCluster()
        cluster.put(node("m0", cpu="8"))
        cluster.put(training_job("one", high=1))
        loop = asyncio.get_running_loop()
        controller = Controller(
            cluster,  # type: ignore[arg-type]
            identity="only",
            clock=loop.time,
            wall_clock=lambda: NOW + loop.time(),
        )
        running = asyncio.create_task(controller.run())
        try:
            await asyncio.sleep(20)
            assert controller.is_leader
            assert cluster.names("ConfigMap") == ["elasticdl-one"]
            cluster.trouble = trouble
            await asyncio.sleep(30)
            # Of what happens now, watches will never hear.
            cluster.put(training_job("two", high=1))
            cluster.forget_history()
            await asyncio.sleep(30)
            assert not running.done(), running.result()
            cluster.trouble = None
            await asyncio.sleep(60)
            assert controller.is_leader
            assert cluster.names("ConfigMap") == ["elasticdl-one", "elasticdl-two"]
            assert cluster.names("Pod") == ["elasticdl-one-master", "elasticdl-two-master"]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    loop = FakeTime()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
