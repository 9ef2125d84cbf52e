"""A watch of a quiet scope resumes at its last bookmark, not at the last change of interest."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.watch import Change, watch
from tests.platforms.kubernetes.scripted_server import config_map, listing, play, watch_events


def test_watch_resumes_at_last_bookmark_and_reports_none() -> None:
    bookmark = {"kind": "ConfigMap", "metadata": {"resourceVersion": "900", "creationTimestamp": None}}

    async def scenario(cluster: Cluster) -> None:
        names: list[str] = []
        async for change in watch(cluster, "ConfigMap"):
            if isinstance(change, Change):
                names.append(change.name)
            if len(names) == 2:
                break
        assert names == ["a", "b"]

    asked = play(
        [
            listing(1, config_map("a", 1)),
            watch_events(("BOOKMARK", bookmark)),
            watch_events(("ADDED", config_map("b", 901))),
        ],
        scenario,
    )
    watches = [parse_qs(urlsplit(path).query) for _, path, _ in asked if "watch=true" in path]
    assert [query["resourceVersion"] for query in watches] == [["1"], ["900"]]
    assert all(query["allowWatchBookmarks"] == ["true"] for query in watches)
