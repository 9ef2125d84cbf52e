"""Namespaces, all of them at once, and kinds that have none."""

from __future__ import annotations

import json

import pytest

from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, Resource
from elasticdl.platforms.kubernetes.watch import Change, watch
from tests.platforms.kubernetes.scripted_server import config_map, listing, play, refusal, reply, watch_events

QUEUE = Resource(kind="Queue", group="example.org", version="v1beta1", plural="queues")


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        ("Pod", "lab", "/api/v1/namespaces/lab/pods/x"),
        ("Event", "lab", "/api/v1/namespaces/lab/events/x"),
        ("Lease", "lab", "/apis/coordination.k8s.io/v1/namespaces/lab/leases/x"),
        ("TrainingJob", "lab", "/apis/elasticdl.org/v1/namespaces/lab/trainingjobs/x"),
        ("Node", "lab", "/api/v1/nodes/x"),
        ("Node", "", "/api/v1/nodes/x"),
        ("CustomResourceDefinition", "lab", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x"),
        (QUEUE, "lab", "/apis/example.org/v1beta1/namespaces/lab/queues/x"),
    ],
)
def test_object_is_found_in_its_scope(kind: str | Resource, namespace: str, path: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.in_namespace(namespace).get(kind, "x") is None

    ((_, asked, _),) = play([refusal(404, "NotFound", "no")], scenario)
    assert asked == path


def test_list_of_all_namespaces_has_no_namespace_in_its_path() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.all_namespaces().list("Pod")
        await cluster.list("Pod")

    asked = play([listing(1), listing(1)], scenario)
    assert [path.partition("?")[0] for _, path, _ in asked] == [
        "/api/v1/pods",
        "/api/v1/namespaces/lab/pods",
    ]


def test_one_object_in_all_namespaces_raises() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ValueError, match="in_namespace"):
            await cluster.all_namespaces().get("Pod", "x")

    assert play([], scenario) == []


def test_creation_in_all_namespaces_uses_the_document_s_namespace() -> None:
    lease = {"kind": "Lease", "metadata": {"name": "x", "namespace": "blue"}}

    async def scenario(cluster: Cluster) -> None:
        await cluster.all_namespaces().create(lease)

    ((method, path, _),) = play([reply(201, lease)], scenario)
    assert (method, path) == ("POST", "/apis/coordination.k8s.io/v1/namespaces/blue/leases")


def test_kind_without_a_table_entry_is_created_by_its_resource() -> None:
    queue = {"kind": "Queue", "metadata": {"name": "x"}}

    async def scenario(cluster: Cluster) -> None:
        await cluster.create(queue, resource=QUEUE)

    ((_, path, body),) = play([reply(201, queue)], scenario)
    assert path == "/apis/example.org/v1beta1/namespaces/lab/queues"
    assert json.loads(body) == queue


def test_unknown_kind_names_the_nearest() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(UserError, match="Did you mean TrainingJob"):
            await cluster.get("TrainingJobs", "x")

    play([], scenario)


def test_watch_of_all_namespaces_keeps_same_names_apart() -> None:
    """An object that is gone after a gap is the one of its namespace, not its namesake."""

    def of(namespace: str, version: int) -> dict[str, object]:
        document = config_map("same", version, uid=namespace)
        document["metadata"]["namespace"] = namespace
        return document

    async def scenario(cluster: Cluster) -> None:
        changes: list[tuple[str, bool]] = []
        async for change in watch(cluster.all_namespaces(), "ConfigMap"):
            if isinstance(change, Change):
                changes.append((change.namespace, change.gone))
            if len(changes) == 4:
                break
        assert changes == [("blue", False), ("red", False), ("red", False), ("blue", True)]

    play(
        [
            listing(2, of("blue", 1), of("red", 2)),
            watch_events(("MODIFIED", of("red", 3))),
            refusal(410, "Expired", "too old"),
            listing(9, of("red", 3)),
        ],
        scenario,
    )
