"""What every platform does: the one suite that all of them pass (see the fixture `open_platform`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform

Play = Callable[[Callable[[Platform], Awaitable[None]]], None]

FOREVER = ("sleep", "1000")
# Only ends what hangs: several pods one after the other take their time on a machine that is busy.
PATIENCE_SECONDS = 240.0


@pytest.fixture
def play(open_platform: Callable[[], Platform]) -> Play:
    def run(scenario: Callable[[Platform], Awaitable[None]]) -> None:
        async def with_platform() -> None:
            platform = open_platform()
            try:
                await asyncio.wait_for(scenario(platform), PATIENCE_SECONDS)
            finally:
                await platform.close()

        asyncio.run(with_platform())

    return run


def request(name: str, *command: str) -> NodeRequest:
    return NodeRequest(name=name, role="worker", command=command)


async def end_of(platform: Platform, name: str) -> NodeStatus:
    async for status in platform.events():
        if status.name == name and status.phase in (NodePhase.SUCCEEDED, NodePhase.FAILED):
            return status
    raise AssertionError("the events ended")


async def running(platform: Platform, name: str) -> None:
    """On a cluster a node that was taken runs only a while later."""
    async for status in platform.events():
        if status.name == name and status.phase is NodePhase.RUNNING:
            return


async def phases(platform: Platform) -> dict[str, NodePhase]:
    return {status.name: status.phase for status in await platform.nodes()}


def test_no_nodes_at_first(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        assert await platform.nodes() == []

    play(scenario)


def test_a_started_node_runs_and_is_listed(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", *FOREVER))
        async for status in platform.events():
            if status.phase is NodePhase.RUNNING:
                break
        assert await phases(platform) == {"worker-0": NodePhase.RUNNING}
        assert (await platform.nodes())[0].role == "worker"

    play(scenario)


def test_a_node_that_completes(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "true"))
        status = await end_of(platform, "worker-0")
        assert (status.phase, status.reason) == (NodePhase.SUCCEEDED, EndReason.COMPLETED)
        assert status.exit_code == 0

    play(scenario)


def test_a_node_that_fails(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "sh", "-c", "exit 3"))
        status = await end_of(platform, "worker-0")
        assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.ERROR)
        assert status.exit_code == 3

    play(scenario)


def test_a_node_that_runs_out_of_memory(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "sh", "-c", "exit 17"))
        status = await end_of(platform, "worker-0")
        assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.OUT_OF_MEMORY)

    play(scenario)


def test_killed_node_is_reported_killed(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "sh", "-c", "kill -9 $$"))
        status = await end_of(platform, "worker-0")
        assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.KILLED)
        assert status.exit_code == 137

    play(scenario)


def test_a_node_that_cannot_start(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "no-such-command"))
        status = await end_of(platform, "worker-0")
        assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.CANNOT_START)
        assert "no-such-command" in status.message

    play(scenario)


def test_a_node_that_is_stopped(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", *FOREVER))
        await platform.stop("worker-0", grace_seconds=50)
        assert (await end_of(platform, "worker-0")).reason is EndReason.STOPPED

    play(scenario)


def test_a_node_that_is_stopped_without_grace(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"))
        await platform.stop("worker-0", grace_seconds=0)
        assert (await end_of(platform, "worker-0")).reason is EndReason.STOPPED

    play(scenario)


def test_stopping_an_unknown_node_is_ignored(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.stop("worker-7", grace_seconds=1)
        assert await platform.nodes() == []

    play(scenario)


def test_stopping_an_ended_node_changes_nothing(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "sh", "-c", "exit 3"))
        before = await end_of(platform, "worker-0")
        await platform.stop("worker-0", grace_seconds=1)
        assert await platform.nodes() == [before]

    play(scenario)


def test_starting_a_running_node_changes_nothing(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", *FOREVER))
        await platform.start(request("worker-0", "sh", "-c", "exit 3"))
        await platform.start(request("worker-1", "true"))
        await end_of(platform, "worker-1")
        await running(platform, "worker-0")
        assert await phases(platform) == {"worker-0": NodePhase.RUNNING, "worker-1": NodePhase.SUCCEEDED}

    play(scenario)


def test_starting_an_ended_node_changes_nothing(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "true"))
        ended = await end_of(platform, "worker-0")
        await platform.start(request("worker-0", *FOREVER))
        assert await platform.nodes() == [ended]

    play(scenario)


def test_ended_nodes_stay_listed(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        for number in range(5):
            await platform.start(request(f"worker-{number}", "sh", "-c", f"exit {number}"))
        for number in range(5):
            await end_of(platform, f"worker-{number}")
        codes = {status.name: status.exit_code for status in await platform.nodes()}
        assert codes == {f"worker-{number}": number for number in range(5)}

    play(scenario)


def test_events_begin_with_the_present(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", "true"))
        await platform.start(request("worker-1", *FOREVER))
        await end_of(platform, "worker-0")
        await running(platform, "worker-1")
        seen = {}
        async for status in platform.events():
            seen[status.name] = status.phase
            if len(seen) == 2:
                break
        assert seen == {"worker-0": NodePhase.SUCCEEDED, "worker-1": NodePhase.RUNNING}

    play(scenario)


def test_events_go_on_with_changes(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        await platform.start(request("worker-0", *FOREVER))
        events = platform.events()
        assert (await events.__anext__()).name == "worker-0"
        await platform.start(request("worker-1", "true"))
        async for status in events:
            if status.name == "worker-1" and status.phase is NodePhase.SUCCEEDED:
                break

    play(scenario)


def test_several_may_listen(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        waiting = [asyncio.ensure_future(end_of(platform, "worker-0")) for _ in range(3)]
        await platform.start(request("worker-0", "true"))
        assert {status.reason for status in await asyncio.gather(*waiting)} == {EndReason.COMPLETED}

    play(scenario)


def test_events_end_when_the_platform_is_closed(open_platform: Callable[[], Platform]) -> None:
    async def scenario() -> list[str]:
        platform = open_platform()
        await platform.start(request("worker-0", *FOREVER))
        names = []
        async for status in platform.events():
            names.append(status.name)
            await platform.close()
        return names

    assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE_SECONDS)) == ["worker-0"]


def test_addresses_are_all_different(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        found = await platform.addresses({"worker": 5, "ps": 3})
        assert {role: len(addresses) for role, addresses in found.items()} in ({"worker": 5, "ps": 3}, {})
        everything = [address for addresses in found.values() for address in addresses]
        assert len(set(everything)) == len(everything)

    play(scenario)


def test_closing_leaves_the_nodes_alone(open_platform: Callable[[], Platform]) -> None:
    async def scenario() -> None:
        first = open_platform()
        await first.start(request("worker-0", *FOREVER))
        await first.close()
        second = open_platform()
        await running(second, "worker-0")
        assert await phases(second) == {"worker-0": NodePhase.RUNNING}
        await second.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_SECONDS))


def test_environment_and_command_arrive_as_given(play: Play) -> None:
    async def scenario(platform: Platform) -> None:
        odd = "ä $HOME 'quoted' \"twice\" = \\ \n"
        await platform.start(
            NodeRequest(
                name="worker-0",
                role="worker",
                command=("sh", "-c", 'test "$1" = "$ODD" && test "${#ODD}" -gt 20', "sh", odd),
                environment={"ODD": odd},
            )
        )
        assert (await end_of(platform, "worker-0")).exit_code == 0

    play(scenario)
