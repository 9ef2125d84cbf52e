"""Lists come in pages, as of one version; one whose version expires between two pages starts over."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from elasticdl.platforms.kubernetes.client import Cluster, ClusterError
from tests.platforms.kubernetes.scripted_server import Reply, config_map, listing, play, refusal

EXPIRED = refusal(410, "Expired", "The provided continue parameter is too old")


def names_after(replies: list[Reply]) -> tuple[list[str], str, list[dict[str, list[str]]]]:
    """The names and the version of a list in pages of two, and the queries that it took."""
    found: list[Any] = []

    async def scenario(cluster: Cluster) -> None:
        result = await cluster.list("ConfigMap", labels={"job": "j"}, page_size=2)
        assert all(item["kind"] == "ConfigMap" for item in result.items)
        found.append(([item["metadata"]["name"] for item in result.items], result.version))

    asked = play(replies, scenario)
    ((names, version),) = found
    return names, version, [parse_qs(urlsplit(path).query) for _, path, _ in asked]


def test_list_follows_continue_tokens() -> None:
    a, b, c = (config_map(name, 1) for name in "abc")
    names, version, queries = names_after([listing(7, a, b, more="next"), listing(7, c)])
    assert (names, version) == (["a", "b", "c"], "7")
    selected = {"labelSelector": ["job=j"], "limit": ["2"]}
    assert queries == [selected, {**selected, "continue": ["next"]}]


def test_list_with_expired_token_starts_over_without_duplicates() -> None:
    a, b, c = (config_map(name, 1) for name in "abc")
    names, version, queries = names_after([listing(7, a, b, more="next"), EXPIRED, listing(9, b, c)])
    assert (names, version) == (["b", "c"], "9")
    assert queries[-1] == {"labelSelector": ["job=j"]}


def test_list_that_is_expired_from_the_start_raises() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="too old"):
            await cluster.list("ConfigMap")

    assert len(play([EXPIRED], scenario)) == 1
