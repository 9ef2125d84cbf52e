"""The Kubernetes client against a real API server: scopes, pages, bookmarks, compare-and-set, subresources."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from e2e.conftest import DEADLINE
from e2e.kubernetes.conftest import Kubectl
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, Resource
from elasticdl.platforms.kubernetes.selectors import exists, is_in, not_equal
from elasticdl.platforms.kubernetes.watch import Change, watch

# The server sends a bookmark shortly before it ends a watch.
_WATCH_SECONDS = 8


@pytest.fixture
def play(kubectl: Kubectl) -> Callable[[Callable[[Cluster], Awaitable[None]]], None]:
    """Runs a scenario with a client in the namespace of the test."""

    def play(scenario: Callable[[Cluster], Awaitable[None]]) -> None:
        async def run() -> None:
            async with Cluster.connect(namespace=kubectl.namespace) as cluster:
                await asyncio.wait_for(scenario(cluster), DEADLINE)

        asyncio.run(run())

    return play


Play = Callable[[Callable[[Cluster], Awaitable[None]]], None]


def config_map(name: str, **labels: str) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def names(items: tuple[Document, ...]) -> list[str]:
    return sorted(item["metadata"]["name"] for item in items)


def test_nodes_are_listed_in_cluster_scope(play: Play, kubectl: Kubectl) -> None:
    async def scenario(cluster: Cluster) -> None:
        found = names((await cluster.list("Node", page_size=1)).items)
        assert found == sorted(node["metadata"]["name"] for node in kubectl.list("nodes"))
        assert await cluster.get("Node", found[0]) is not None

    play(scenario)


def test_list_in_pages_has_every_object_once(play: Play) -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(7):
            await cluster.create(config_map(f"page-{number}", tier="ab"[number % 2]))
        expected = [f"page-{number}" for number in range(7)]
        listing = await cluster.list("ConfigMap", labels=[exists("tier")], page_size=2)
        assert names(listing.items) == expected
        # Another namespace may hold objects of other tests.
        everywhere = await cluster.all_namespaces().list(
            "ConfigMap", labels=[is_in("tier", "a", "b")], fields=[not_equal("metadata.name", "page-0")]
        )
        here = [item for item in everywhere.items if item["metadata"]["namespace"] == cluster.namespace]
        assert names(tuple(here)) == expected[1:]
        assert names(
            (await cluster.list("ConfigMap", labels=[not_equal("tier", "a"), exists("tier")])).items
        ) == [
            "page-1",
            "page-3",
            "page-5",
        ]

    play(scenario)


def test_bookmark_is_newer_than_the_list_of_a_quiet_watch(play: Play) -> None:
    async def scenario(cluster: Cluster) -> None:
        labels = {"tier": "none"}
        version = (await cluster.list("ConfigMap", labels=labels)).version
        # The watch is not about it, but the version of the store grows.
        made = await cluster.create(config_map("unrelated"))
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "labelSelector": "tier=none",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        async with cluster.stream(cluster.path("ConfigMap"), query, read_seconds=DEADLINE) as response:
            events = [json.loads(line) async for line in response.aiter_lines()]
        assert {event["type"] for event in events} == {"BOOKMARK"}
        bookmark = int(events[-1]["object"]["metadata"]["resourceVersion"])
        assert bookmark >= int(made["metadata"]["resourceVersion"])

    play(scenario)


def test_lease_of_an_old_version_is_not_replaced(play: Play) -> None:
    lease: Document = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader"},
        "spec": {"holderIdentity": "first", "leaseDurationSeconds": 15},
    }

    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(lease)
        with pytest.raises(ClusterError) as again:
            await cluster.create(lease)
        assert again.value.reason == "AlreadyExists"
        renewed = await cluster.replace({**made, "spec": {**made["spec"], "holderIdentity": "second"}})
        assert renewed is not None
        assert renewed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        with pytest.raises(ClusterError) as late:
            await cluster.replace({**made, "spec": {**made["spec"], "holderIdentity": "third"}})
        assert late.value.reason == "Conflict"
        found = await cluster.get("Lease", "leader")
        assert found is not None
        assert found["spec"]["holderIdentity"] == "second"

    play(scenario)


def definition(group: str) -> Document:
    replicas: Any = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": replicas, "status": replicas}}
        },
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"sizes.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Size", "plural": "sizes", "singular": "size"},
            "versions": [version],
        },
    }


async def established(cluster: Cluster, name: str) -> None:
    async for change in watch(cluster, "CustomResourceDefinition", fields={"metadata.name": name}):
        if isinstance(change, Change) and not change.gone:
            conditions = change.document.get("status", {}).get("conditions") or []
            if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                return


async def created(cluster: Cluster, document: Document, resource: Resource) -> Document:
    """A new kind is served a moment after it is established."""
    while True:
        try:
            return await cluster.create(document, resource=resource)
        except ClusterError as error:
            if error.status != 404:
                raise
        await asyncio.sleep(0.2)


def test_custom_kind_has_status_and_scale(play: Play) -> None:
    group = f"t{uuid.uuid4().hex[:8]}.example.org"
    resource = Resource(kind="Size", group=group, plural="sizes")
    size = {
        "apiVersion": resource.api_version,
        "kind": "Size",
        "metadata": {"name": "x"},
        "spec": {"replicas": 2},
    }

    async def use(cluster: Cluster) -> None:
        await established(cluster, f"sizes.{group}")
        made = await created(cluster, size, resource)
        scaled = await cluster.patch(resource, "x", {"spec": {"replicas": 5}}, subresource="scale")
        assert scaled is not None
        assert (scaled["kind"], scaled["spec"]["replicas"]) == ("Scale", 5)
        found = await cluster.get(resource, "x")
        assert found is not None
        # A change of the status changes nothing else, and is not a new generation.
        written = await cluster.replace(
            {**found, "spec": {"replicas": 9}, "status": {"replicas": 4}},
            resource=resource,
            subresource="status",
        )
        assert written is not None
        assert (written["spec"], written["status"]) == ({"replicas": 5}, {"replicas": 4})
        assert written["metadata"]["generation"] == found["metadata"]["generation"] == 2
        scale = await cluster.get(resource, "x", subresource="scale")
        assert scale is not None
        assert scale["status"]["replicas"] == 4
        assert names((await cluster.all_namespaces().list(resource)).items) == ["x"]
        assert await cluster.delete(resource, "x", uid="another") is None
        assert await cluster.delete(resource, "x", uid=made["metadata"]["uid"]) is not None

    async def scenario(cluster: Cluster) -> None:
        await cluster.create(definition(group))
        try:
            await use(cluster)
        finally:
            await cluster.delete("CustomResourceDefinition", f"sizes.{group}")

    play(scenario)
