"""How soon and how often the controller plans: all of it, with informers and election, on a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from elasticdl.controller.controller import Controller, ControllerTiming
from elasticdl.controller.serving.metrics import ControllerMetrics
from tests.controller.builders import NOW, Document, node, training_job
from tests.controller.memory_cluster import MemoryCluster
from tests.master.fake_time import FakeTime

# The watches of the cluster in memory look twice a second.
_WATCH_SECONDS = 0.5


class Bench:
    """A controller that leads, and the requests that it has made since."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.loop = asyncio.get_running_loop()
        self.metrics = ControllerMetrics()
        self.verbs: list[str] = []
        cluster.trouble = self._hear
        self.controller = Controller(
            cluster,  # type: ignore[arg-type]
            identity="only",
            clock=self.loop.time,
            wall_clock=lambda: NOW + self.loop.time(),
            metrics=self.metrics,
        )

    def steps(self) -> float:
        return self.metrics.registry.get_sample_value("elasticdl_controller_planning_seconds_count") or 0.0

    async def until(self, is_so: Callable[[], bool]) -> float:
        """Returns the time that it took."""
        begun = self.loop.time()
        while not is_so():
            assert self.loop.time() < begun + 60
            await asyncio.sleep(0.01)
        return self.loop.time() - begun

    async def _hear(self, verb: str) -> None:
        self.verbs.append(verb)


def run(scenario: Callable[[Bench], Awaitable[None]], *documents: Document) -> None:
    async def main() -> None:
        cluster = MemoryCluster()
        for document in documents:
            cluster.put(document)
        bench = Bench(cluster)
        running = asyncio.create_task(bench.controller.run())
        try:
            await asyncio.sleep(20)
            assert bench.controller.is_leader
            await scenario(bench)
            assert not running.done(), running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    loop = FakeTime()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_job_created_right_after_a_plan_does_not_wait_for_the_interval() -> None:
    async def scenario(bench: Bench) -> None:
        for name in ("one", "two", "three"):
            bench.cluster.put(training_job(name, high=1))
            master = f"elasticdl-{name}-master"
            seconds = await bench.until(lambda: master in bench.cluster.names("Pod"))  # noqa: B023
            assert seconds <= _WATCH_SECONDS + 0.2

    run(scenario, node("m0", cpu="16"))


def test_heartbeat_of_a_node_causes_no_plan() -> None:
    async def scenario(bench: Bench) -> None:
        before = bench.steps()
        for beat in range(30):
            document = node("m0")
            document["status"]["conditions"][0]["lastHeartbeatTime"] = f"2023-11-14T22:14:{beat:02}Z"
            bench.cluster.put(document)
            await asyncio.sleep(1)
        resyncs = 30 / ControllerTiming().resync_seconds
        assert bench.steps() - before <= resyncs + 1

    run(scenario, node("m0"))


def test_job_whose_pods_change_all_the_time_is_written_once_a_second() -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put(training_job(high=1))
        await bench.until(lambda: bool(bench.cluster.names("Pod")))
        (key,) = (key for key in bench.cluster.objects if key[0] == "pods")
        bench.verbs.clear()
        for number in range(40):
            message = f"event {number}"
            waiting = {"reason": "ImagePullBackOff" if number % 2 else "CrashLoopBackOff", "message": message}
            status = {
                "phase": "Pending",
                "containerStatuses": [{"name": "main", "state": {"waiting": waiting}}],
            }
            bench.cluster.put({**bench.cluster.objects[key], "kind": "Pod", "status": status})
            await asyncio.sleep(0.25)
        assert 5 <= bench.verbs.count("update") <= 2 * 11

    run(scenario, node("m0"))


@pytest.mark.parametrize(
    ("step_seconds", "pause"), [(0.0, 0.0), (0.01, 0.09), (0.1, 0.9), (0.2, 1.0), (30.0, 1.0)]
)
def test_pause_leaves_planning_a_tenth_of_the_time_up_to_the_interval(
    step_seconds: float, pause: float
) -> None:
    assert ControllerTiming().pause_after(step_seconds) == pytest.approx(pause)
