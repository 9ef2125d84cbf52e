"""The Kubernetes client against a real API server: scopes, pages, bookmarks, compare-and-set, subresources."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import Awaitable, Callable

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
        version = (await cluster.list("ConfigMap", labels={"tier": "none"})).version
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "labelSelector": "tier=none",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        events: list[Document] = []
        # A server that is busy may end a watch before its bookmark.
        for attempt in itertools.count():
            async with cluster.stream(cluster.path("ConfigMap"), query, read_seconds=DEADLINE) as response:
                # The watch is not about it, but the version of the store grows.
                made = await cluster.create(config_map(f"unrelated-{attempt}"))
                events = [json.loads(line) async for line in response.aiter_lines()]
            if events:
                break
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
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}},
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


async def changed(cluster: Cluster, name: str, condition: Callable[[Change], bool]) -> None:
    async for change in watch(cluster, "CustomResourceDefinition", fields={"metadata.name": name}):
        if isinstance(change, Change) and condition(change):
            return


def is_established(change: Change) -> bool:
    conditions = change.document.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def test_custom_resource_definition_is_established_and_deleted(play: Play) -> None:
    """No object of the kind is created: the API server of the cluster that `e2e.cluster` starts, 1.20.2 built with Go
    1.19, crashes when one is.
    """
    group = f"t{uuid.uuid4().hex[:8]}.example.org"
    name = f"sizes.{group}"

    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(definition(group))
        await changed(cluster, name, is_established)
        with pytest.raises(ClusterError) as again:
            await cluster.create(definition(group))
        assert again.value.reason == "AlreadyExists"
        assert await cluster.delete("CustomResourceDefinition", name, uid="another") is None
        assert await cluster.get("CustomResourceDefinition", name) is not None
        assert await cluster.delete("CustomResourceDefinition", name, uid=made["metadata"]["uid"]) is not None
        while await cluster.get("CustomResourceDefinition", name) is not None:
            await asyncio.sleep(0.2)

    play(scenario)


def pod_template(name: str) -> Document:
    """Of pods that no scheduler takes, so that nothing but the test changes them."""
    containers = [{"name": "main", "image": "none"}]
    return {
        "metadata": {"name": name, "labels": {"test": name}},
        "spec": {"schedulerName": "none", "containers": containers},
    }


def test_scale_changes_the_size_alone(play: Play) -> None:
    deployments = Resource(kind="Deployment", group="apps", plural="deployments")
    deployment: Document = {
        "apiVersion": deployments.api_version,
        "kind": "Deployment",
        "metadata": {"name": "sized"},
        "spec": {
            # One that is paused creates no pods.
            "paused": True,
            "replicas": 2,
            "selector": {"matchLabels": {"test": "sized"}},
            "template": pod_template("sized"),
        },
    }

    async def scenario(cluster: Cluster) -> None:
        await cluster.create(deployment, resource=deployments)
        scaled = await cluster.patch(deployments, "sized", {"spec": {"replicas": 5}}, subresource="scale")
        assert scaled is not None
        assert (scaled["kind"], scaled["spec"]["replicas"]) == ("Scale", 5)
        scale = await cluster.get(deployments, "sized", subresource="scale")
        assert scale is not None
        assert scale["spec"] == {"replicas": 5}
        found = await cluster.get(deployments, "sized")
        assert found is not None
        assert (found["spec"]["replicas"], found["spec"]["paused"]) == (5, True)
        assert (
            await cluster.patch(deployments, "none", {"spec": {"replicas": 5}}, subresource="scale") is None
        )

    play(scenario)


def test_status_is_written_apart_from_the_spec(play: Play) -> None:
    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create({"apiVersion": "v1", "kind": "Pod", **pod_template("reported")})
        # A status request leaves the spec as it is.
        document = {**made, "status": {**made["status"], "reason": "Replaced"}}
        document["spec"] = {**made["spec"], "activeDeadlineSeconds": 60}
        written = await cluster.replace(document, subresource="status")
        assert written is not None
        assert written["status"]["reason"] == "Replaced"
        assert written["spec"] == made["spec"]
        with pytest.raises(ClusterError) as late:
            await cluster.replace(document, subresource="status")
        assert late.value.reason == "Conflict"
        patched = await cluster.patch(
            "Pod", "reported", {"status": {"reason": "Patched"}}, subresource="status"
        )
        assert patched is not None
        assert patched["status"]["reason"] == "Patched"

    play(scenario)
