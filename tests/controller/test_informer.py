"""An informer whose API server refuses, forgets or does not know what it asks for: reported, and asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from elasticdl.controller.informer import Informer, Watched
from elasticdl.platforms.kubernetes.api_resources import TRAINING_JOB
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.watch import Change
from tests.platforms.kubernetes.scripted_server import (
    HANG_UP,
    Reply,
    config_map,
    listing,
    play,
    refusal,
    reply,
    watch_events,
)

OLD = reply(200, {"major": "1", "minor": "20"})
RECORDS = Watched(resource="ConfigMap")
JOBS = Watched(resource=TRAINING_JOB, is_custom=True)
FORBIDDEN = refusal(
    403, "Forbidden", 'configmaps is forbidden: User "edl" cannot list resource "configmaps" in API group ""'
)


def informed(
    replies: list[Reply], until: Callable[[Informer, list[str]], bool], watched: Watched = RECORDS
) -> tuple[Informer, list[str]]:
    """An informer beside such a server, and what it has reported until then."""
    found: list[Informer] = []
    seen: list[str] = []

    async def scenario(cluster: Cluster) -> None:
        reached = asyncio.Event()

        def look(*_: object) -> None:
            if found and until(found[0], seen):
                reached.set()

        def changed(_: Watched, change: Change) -> None:
            seen.append(change.name)
            look()

        informer = Informer(
            cluster=cluster,
            watched=watched,
            on_change=changed,
            on_sync=look,
            absent_seconds=0.001,
        )
        found.append(informer)
        running = asyncio.create_task(informer.run())
        while not reached.is_set():
            look()
            await asyncio.sleep(0.001)
        running.cancel()

    play(replies, scenario)
    return found[0], seen


def test_missing_right_is_named_with_its_verbs_until_it_is_given() -> None:
    troubles: list[str] = []

    def until(informer: Informer, seen: list[str]) -> bool:
        troubles.append(informer.trouble)
        return bool(seen)

    replies = [OLD, FORBIDDEN, FORBIDDEN, listing(3, config_map("a", 1))]
    _, seen = informed(replies, until)
    assert seen == ["a"]
    [words] = {each for each in troubles if each}
    assert words.startswith("a role must grant the verbs list and watch on configmaps (")
    assert 'cannot list resource "configmaps"' in words


def test_kind_that_is_not_installed_counts_as_empty_until_it_is() -> None:
    absent = reply(200, {"resources": []})
    present = reply(200, {"resources": [{"name": "trainingjobs"}]})

    informer, _ = informed([absent], lambda informer, seen: informer.is_synced, JOBS)
    assert informer.trouble == "trainingjobs.elasticdl.org is not installed"
    informer, seen = informed(
        [absent, present, OLD, listing(3, config_map("job", 1))], lambda informer, seen: bool(seen), JOBS
    )
    assert seen == ["job"]


@pytest.mark.parametrize(
    "trouble",
    [
        refusal(429, "TooManyRequests", "slow down", Retry_After="0"),
        refusal(500, "InternalError", "etcd leader changed"),
        refusal(503, "ServiceUnavailable", "starting"),
        HANG_UP,
    ],
    ids=["429", "500", "503", "nothing"],
)
def test_server_in_trouble_is_asked_until_it_answers(trouble: Reply) -> None:
    replies = [
        OLD,
        trouble,
        trouble,
        listing(3, config_map("a", 1)),
        trouble,
        watch_events(("ADDED", config_map("b", 4))),
    ]
    _, seen = informed(replies, lambda informer, seen: len(seen) == 2)
    assert seen == ["a", "b"]


def test_watch_that_is_too_old_lists_again() -> None:
    gone = refusal(410, "Expired", "too old resource version")
    replies = [OLD, listing(3, config_map("a", 1)), gone, listing(9, config_map("b", 5))]
    _, seen = informed(replies, lambda informer, seen: len(seen) == 3)
    # The first is gone, which is a change of it as well.
    assert seen == ["a", "a", "b"]
