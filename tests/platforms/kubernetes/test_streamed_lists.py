"""A watch that begins with all objects, only where the server can do that; else a list in pages comes first."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from elasticdl.platforms.kubernetes.client import Cluster, ClusterError
from elasticdl.platforms.kubernetes.watch import Asked, Change, Synced, watch
from tests.platforms.kubernetes.scripted_server import (
    Reply,
    config_map,
    listing,
    play,
    refusal,
    reply,
    watch_events,
)

NEW = reply(200, {"major": "1", "minor": "34+"})
OLD = reply(200, {"major": "1", "minor": "20"})


def bookmark(version: int, *, ends: bool = False) -> tuple[str, dict[str, Any]]:
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends else {}
    return "BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version), **annotations}}


def added(name: str, version: int) -> tuple[str, dict[str, Any]]:
    return "ADDED", config_map(name, version)


def seen_after(replies: list[Reply], count: int) -> tuple[list[str], list[str]]:
    """What a watch reports, up to so many reports, and the paths that it has asked for."""
    seen: list[str] = []

    async def scenario(cluster: Cluster) -> None:
        async for report in watch(cluster, "ConfigMap", is_large=True):
            if isinstance(report, Change):
                seen.append(f"{'-' if report.gone else '+'}{report.name}")
            else:
                seen.append({Asked: "asked", Synced: "synced"}[type(report)])
            if len(seen) == count:
                break

    return seen, [path for _, path, _ in play(replies, scenario)]


def query_of(path: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}


def test_new_server_streams_all_objects_before_changes() -> None:
    stream = watch_events(
        added("a", 5), bookmark(4), added("b", 6), bookmark(9, ends=True), added("c", 10), bookmark(12)
    )
    seen, paths = seen_after([NEW, stream, watch_events(added("d", 13))], 6)
    assert seen == ["asked", "+a", "+b", "synced", "+c", "+d"]
    assert paths[0] == "/version"
    first, second = (query_of(path) for path in paths[1:])
    assert (first["sendInitialEvents"], first["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert "resourceVersion" not in first
    # What it resumes with is a plain watch.
    assert second["resourceVersion"] == "12"
    assert "sendInitialEvents" not in second


@pytest.mark.parametrize("version", [OLD, refusal(403, "Forbidden", "no"), reply(200, {})])
def test_old_or_unknown_server_lists_in_pages(version: Reply) -> None:
    replies = [version, listing(7, config_map("a", 5), more="next"), listing(7, config_map("b", 6))]
    seen, paths = seen_after([*replies, watch_events(added("c", 8))], 5)
    assert seen == ["asked", "+a", "+b", "synced", "+c"]
    assert not any("sendInitialEvents" in path for path in paths)


@pytest.mark.parametrize("status", [400, 422])
def test_server_that_refuses_is_asked_for_pages_and_never_again_for_a_stream(status: int) -> None:
    refused = refusal(status, "Invalid", "sendInitialEvents is forbidden")
    expired = watch_events(("ERROR", {"code": 410, "reason": "Expired", "message": "too old"}))
    replies = [NEW, refused, listing(7, config_map("a", 5)), expired, listing(9, config_map("a", 5))]
    seen, paths = seen_after([*replies, watch_events(added("b", 10))], 7)
    assert seen == ["asked", "asked", "+a", "synced", "asked", "synced", "+b"]
    assert ["sendInitialEvents" in path for path in paths].count(True) == 1


def test_stream_that_breaks_before_its_end_reports_nothing_and_starts_over() -> None:
    broken = watch_events(added("a", 5), added("gone-meanwhile", 6))
    whole = watch_events(added("a", 5), bookmark(9, ends=True))
    seen, _ = seen_after([NEW, broken, whole], 4)
    assert seen == ["asked", "asked", "+a", "synced"]


def test_expired_watch_streams_again_and_reports_what_is_gone() -> None:
    expired = ("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    first = watch_events(added("a", 5), added("b", 6), bookmark(9, ends=True), expired)
    second = watch_events(added("b", 6), bookmark(20, ends=True))
    seen, _ = seen_after([NEW, first, second], 7)
    assert seen == ["asked", "+a", "+b", "synced", "asked", "-a", "synced"]


def test_missing_right_to_watch_raises() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="cannot watch"):
            async for _ in watch(cluster, "ConfigMap", is_large=True):
                pass

    play([NEW, refusal(403, "Forbidden", "cannot watch resource configmaps")], scenario)
