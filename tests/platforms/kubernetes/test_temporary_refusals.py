"""An API server that has just started refuses for some seconds what it granted before. No node fails of that; a
permission that is really missing is reported all the same.
"""

from __future__ import annotations

import asyncio

import pytest

from elasticdl.platforms.kubernetes.client import ClusterError
from elasticdl.platforms.kubernetes.fenced_changes import REFUSED_SECONDS
from elasticdl.platforms.kubernetes.kubernetes_platform import KubernetesPlatform
from elasticdl.platforms.platform import EndReason, NodePhase
from tests.platforms.kubernetes.test_pod_failures import FORBIDDEN, Api, play, pod, request, wait_for_phase


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def asked(api: Api, method: str) -> int:
    return sum(asked == method for asked, _, _ in api.asked)


def test_a_pod_that_is_refused_where_others_are_taken_waits() -> None:
    api = Api(pod("running", 3))
    api.forbidden = {"POST": 3}

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(4))
        waiting = {status.name: status for status in await platform.nodes()}["worker-4"]
        assert (waiting.phase, waiting.message) == (NodePhase.PENDING, FORBIDDEN)
        while asked(api, "POST") < 4:
            await asyncio.sleep(0.01)
        api.news.put_nowait(("ADDED", pod("running", 4)))
        await wait_for_phase(platform, "worker-4", NodePhase.RUNNING)

    play(api, scenario, clock=Clock())


def test_accepted_creation_shows_that_later_refusal_is_temporary() -> None:
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0))
        api.forbidden = {"POST": 1}
        await platform.start(request(1))
        assert {status.phase for status in await platform.nodes()} == {NodePhase.PENDING}

    play(api, scenario, clock=Clock())


def test_not_for_ever() -> None:
    api = Api(pod("running", 3))
    api.forbidden = {"POST": 10**6}
    clock = Clock()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(4))
        clock.now = REFUSED_SECONDS
        ended = await wait_for_phase(platform, "worker-4", NodePhase.FAILED)
        assert (ended.reason, ended.message) == (EndReason.CANNOT_START, FORBIDDEN)

    play(api, scenario, clock=clock)


def test_missing_permission_before_the_first_pod_fails_at_once() -> None:
    api = Api()
    api.forbidden = {"POST": 1}

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0))
        (status,) = await platform.nodes()
        assert (status.reason, status.message) == (EndReason.CANNOT_START, FORBIDDEN)

    play(api, scenario)


def test_a_stop_is_asked_for_again() -> None:
    api = Api(pod("running", 3))
    api.forbidden = {"PATCH": 1, "DELETE": 2}

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.stop("worker-3", grace_seconds=10)

    play(api, scenario, clock=Clock())
    assert (asked(api, "PATCH"), asked(api, "DELETE")) == (2, 3)


def test_missing_right_to_delete_is_raised_after_timeout() -> None:
    api = Api(pod("running", 3))
    api.forbidden = {"DELETE": 10**6}
    clock = Clock()

    async def scenario(platform: KubernetesPlatform) -> None:
        stopping = asyncio.ensure_future(platform.stop("worker-3", grace_seconds=0))
        while not asked(api, "DELETE"):
            await asyncio.sleep(0.01)
        clock.now = REFUSED_SECONDS
        with pytest.raises(ClusterError, match="cannot do that"):
            await stopping

    play(api, scenario, clock=clock)


def test_refused_removal_of_lost_pod_is_retried() -> None:
    leaving = pod("leaving", 3)
    leaving["metadata"]["deletionGracePeriodSeconds"] = 1
    api = Api(leaving)
    api.forbidden = {"DELETE": 1}

    async def scenario(platform: KubernetesPlatform) -> None:
        assert (await wait_for_phase(platform, "worker-3", NodePhase.FAILED)).reason is EndReason.KILLED

    play(api, scenario, clock=Clock())
    assert asked(api, "DELETE") == 2
