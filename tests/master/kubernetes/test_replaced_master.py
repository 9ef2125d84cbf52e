"""The record has one writer: a master that was replaced while it was cut off finds out, and changes nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from elasticdl.jobs.job_record import MASTER_KEY
from elasticdl.master.kubernetes.record_writer import RecordWriter, Replaced
from elasticdl.platforms.kubernetes.client import ClusterError
from elasticdl.platforms.kubernetes.manifests import WRITTEN_AT
from tests.master.kubernetes.test_job_record_sync import NAME, FakeCluster, Play, Scene, busy, play

__all__ = ["play"]


def writer(cluster: FakeCluster, uid: str) -> RecordWriter:
    return RecordWriter(cluster, "kept", uid=uid)  # type: ignore[arg-type]


async def replace(cluster: FakeCluster) -> RecordWriter:
    """By a new pod, the master from now on."""
    cluster.uid = "new"
    new = writer(cluster, "new")
    await new.claim()
    return new


def with_cluster(scenario: Callable[[FakeCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(FakeCluster())

    asyncio.run(run())


def test_write_of_replaced_master_is_fenced() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        old = writer(cluster, "me")
        await old.claim()
        await old.write({"status.json": "old"})
        new = await replace(cluster)
        await new.write({"status.json": "new"})
        with pytest.raises(Replaced):
            await old.write({"status.json": "older still", "state.json": None})
        assert cluster.data["status.json"] == "new"
        await new.write({"status.json": "newer"})
        assert cluster.data["status.json"] == "newer"

    with_cluster(scenario)


def test_its_container_that_is_started_again_claims_nothing() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        await replace(cluster)
        with pytest.raises(Replaced):
            await writer(cluster, "me").claim()
        assert cluster.data[MASTER_KEY] == "new"

    with_cluster(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "uid", "claims"),
    [
        # The job was deleted, and another one submitted that has its name. The pod is on its way out.
        ("ConfigMap", NAME, "of the record before", False),
        ("ConfigMap", NAME, "1", True),
        # Made by a workflow, from a file.
        ("Workflow", "nightly", "of a workflow", True),
    ],
)
def test_only_the_record_of_its_own_job_is_claimed(kind: str, name: str, uid: str, claims: bool) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.owners = [{"kind": kind, "name": name, "uid": uid}]
        claimed = await writer(cluster, "me").claim()
        assert (claimed is not None) == (MASTER_KEY in cluster.data) == claims

    with_cluster(scenario)


def test_a_claim_that_comes_too_late() -> None:
    """The pod was the master's when it looked; when the claim arrives there is another, which has the record."""

    class Slow(FakeCluster):
        async def patch(self, kind: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
            if changes["data"] == {MASTER_KEY: "me"} and self.uid == "me":
                await replace(self)
            return await super().patch(kind, name, changes)

    async def scenario(cluster: FakeCluster) -> None:
        cluster = Slow()
        with pytest.raises(Replaced):
            await writer(cluster, "me").claim()
        assert cluster.data[MASTER_KEY] == "new"

    with_cluster(scenario)


def test_desired_state_written_meanwhile_does_not_block_the_claim() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        mine = writer(cluster, "me")
        await mine.claim()
        cluster.desire("{}")
        await mine.write({"status.json": "fine"})
        assert cluster.data["status.json"] == "fine"

    with_cluster(scenario)


def test_record_too_large_for_a_claim_is_kept() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.refusals = [ClusterError("too large", status=422, reason="Invalid")]
        mine = writer(cluster, "me")
        assert await mine.claim() is not None
        cluster.desire("{}")
        await mine.write({"status.json": "fine"})
        assert MASTER_KEY not in cluster.data
        assert cluster.data["status.json"] == "fine"

    with_cluster(scenario)


def test_sync_ends_as_soon_as_it_sees_another_master(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        await replace(scene.cluster)
        await asyncio.sleep(0.001)
        with pytest.raises(Replaced):
            scene.keeping.result()

    play(scenario)


def test_final_status_of_replaced_master_is_not_written(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        scene.keeping.cancel()
        await replace(scene.cluster)
        before = dict(scene.cluster.data)
        busy(scene)
        with pytest.raises(Replaced):
            await scene.sync.write_final()
        assert scene.cluster.data == before

    play(scenario)


def test_writes_carry_timestamp_of_the_cluster() -> None:
    """That of the master's machine may be wrong."""

    async def scenario(cluster: FakeCluster) -> None:
        master = writer(cluster, "me")
        cluster.now = 1_800_000_000.5
        await master.claim()
        assert cluster.annotations == {WRITTEN_AT: "1800000000"}
        cluster.now = 1_800_000_125.0
        await master.write({"status.json": "{}"})
        assert cluster.annotations == {WRITTEN_AT: "1800000125"}
        # A master that does not know the time removes the annotation.
        cluster.now = None
        await master.write({"status.json": "{}"})
        assert cluster.annotations == {WRITTEN_AT: None}

    with_cluster(scenario)
