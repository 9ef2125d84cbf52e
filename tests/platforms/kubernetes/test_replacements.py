"""Compare-and-set of whole objects, and the subresources `status` and `scale`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.platforms.kubernetes.client import Cluster, ClusterError
from tests.platforms.kubernetes.scripted_server import HANG_UP, play, refusal, reply

CONFLICT = refusal(409, "Conflict", "the object has been modified")


def lease(holder: str, version: int) -> dict[str, Any]:
    metadata = {"name": "leader", "resourceVersion": str(version)}
    return {"kind": "Lease", "metadata": metadata, "spec": {"holderIdentity": holder}}


def test_replacement_of_a_changed_object_raises_conflict() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="has been modified") as refused:
            await cluster.replace(lease("me", 1))
        assert refused.value.reason == "Conflict"

    ((method, path, body),) = play([CONFLICT], scenario)
    assert (method, path) == ("PUT", "/apis/coordination.k8s.io/v1/namespaces/lab/leases/leader")
    assert json.loads(body) == lease("me", 1)


@pytest.mark.parametrize(("holder", "is_ours"), [("me", True), ("you", False)])
def test_replacement_whose_response_was_lost_is_recognised(holder: str, is_ours: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        if is_ours:
            assert await cluster.replace(lease("me", 1)) == lease("me", 2)
        else:
            with pytest.raises(ClusterError, match="has been modified"):
                await cluster.replace(lease("me", 1))

    play([HANG_UP, CONFLICT, reply(200, lease(holder, 2))], scenario)


def test_creation_whose_response_was_lost_does_not_take_another_holder_for_ours() -> None:
    document = {"kind": "Lease", "metadata": {"name": "leader"}, "spec": {"holderIdentity": "me"}}

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="exists"):
            await cluster.create(document)
        assert await cluster.create(document) == lease("me", 8)

    exists = refusal(409, "AlreadyExists", "it exists")
    other = reply(200, lease("you", 7))
    play([HANG_UP, exists, other, HANG_UP, exists, reply(200, lease("me", 8))], scenario)


def test_replacement_of_a_missing_object_is_none() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.replace(lease("me", 1)) is None

    play([refusal(404, "NotFound", "no")], scenario)


def test_subresources_have_paths_of_their_own() -> None:
    job = {"kind": "TrainingJob", "metadata": {"name": "j"}, "status": {"phase": "Running"}}

    async def scenario(cluster: Cluster) -> None:
        await cluster.get("TrainingJob", "j", subresource="scale")
        await cluster.patch("TrainingJob", "j", {"spec": {"replicas": 3}}, subresource="scale")
        await cluster.replace(job, subresource="status")

    asked = play([reply(200, {})] * 3, scenario)
    root = "/apis/elasticdl.org/v1/namespaces/lab/trainingjobs/j"
    assert [(method, path) for method, path, _ in asked] == [
        ("GET", f"{root}/scale"),
        ("PATCH", f"{root}/scale"),
        ("PUT", f"{root}/status"),
    ]
