"""The job record in step with the master: when it is written, what is in it, how the desired state is applied."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.desired import Desired
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import ScaleRole
from elasticdl.master.kubernetes.record_sync import RecordSync, report_failure
from elasticdl.master.kubernetes.record_writer import RecordWriter
from elasticdl.master.master import Master
from elasticdl.platforms.kubernetes.client import ClusterError, Listing
from elasticdl.wire import ps_pb2
from tests.master.fake_time import FakeTime

SPEC = JobSpec.build(job_name="kept", image_name="i", job_command="x", num_workers=2)
NAME = "elasticdl-kept"


class Answer:
    """Of a watch: yields what is put in."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    async def aiter_lines(self) -> AsyncIterator[str]:
        while True:
            yield await self.lines.get()


class FakeCluster:
    """One object, which is watched and patched."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {"desired.json": Desired().to_text()}
        self.patches: list[tuple[float, dict[str, str]]] = []
        self.refusals: list[ClusterError] = []
        # What is refused, if it is for good.
        self.refuses: Callable[[dict[str, Any]], ClusterError | None] = lambda data: None
        self.answer = Answer()
        self.version = 1
        # Of the pod that has the master's name.
        self.uid = "me"
        # And to whom it belongs.
        self.owners: list[dict[str, str]] = []
        # By the API server's clock.
        self.now: float | None = None
        self.annotations: dict[str, Any] = {}

    def path(self, kind: str, name: str = "") -> str:
        return f"/{kind}/{name}"

    async def list(self, kind: str, *, labels: Any, fields: dict[str, str], transform: Any = None) -> Listing:
        assert (kind, fields) == ("ConfigMap", {"metadata.name": NAME})
        assert transform is None
        return Listing(items=(self._object(),), version="1")

    @contextlib.asynccontextmanager
    async def stream(self, path: str, query: Any, *, read_seconds: float) -> AsyncIterator[Answer]:
        yield self.answer

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        pod = {"metadata": {"name": name, "uid": self.uid, "ownerReferences": self.owners}}
        return self._object() if kind == "ConfigMap" else pod

    async def patch(self, kind: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        assert (kind, name) == ("ConfigMap", NAME)
        if changes["metadata"]["resourceVersion"] != str(self.version):
            raise ClusterError("it has changed", status=409, reason="Conflict")
        if self.refusals:
            raise self.refusals.pop()
        if refusal := self.refuses(changes["data"]):
            raise refusal
        self.annotations |= changes["metadata"].get("annotations", {})
        self.patches.append((asyncio.get_running_loop().time(), changes["data"]))
        self.data = {key: text for key, text in {**self.data, **changes["data"]}.items() if text is not None}
        self._tell("MODIFIED")
        return self._object()

    def desire(self, desired: Desired | str) -> None:
        self.data["desired.json"] = desired if isinstance(desired, str) else desired.to_text()
        self._tell("MODIFIED")

    def delete(self) -> None:
        self._tell("DELETED")

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.data["status.json"]))

    def _object(self) -> dict[str, Any]:
        metadata = {"name": NAME, "resourceVersion": str(self.version), "uid": "1"}
        return {"metadata": metadata, "data": dict(self.data)}

    def _tell(self, kind: str) -> None:
        self.version += 1
        self.answer.lines.put_nowait(json.dumps({"type": kind, "object": self._object()}))


class Scene:
    keeping: asyncio.Task[None]

    def __init__(self, folder: Path, platform: Any) -> None:
        self.cluster = FakeCluster()
        self.master = Master(spec=SPEC, folder=folder, platform=platform, token="t", environment={})
        self.master.recover()
        self.writer = RecordWriter(self.cluster, "kept", uid="me")  # type: ignore[arg-type]
        self.sync = RecordSync(self.cluster, self.master, self.writer)  # type: ignore[arg-type]


Play = Callable[[Callable[[Scene], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path, nowhere: Any) -> Play:
    """Runs a scenario beside the sync, with a fake clock that advances while everything waits."""

    def run(scenario: Callable[[Scene], Awaitable[None]]) -> None:
        async def both() -> None:
            scene = Scene(tmp_path, nowhere)
            await scene.writer.claim()
            scene.cluster.patches.clear()
            scene.keeping = asyncio.create_task(scene.sync.run())
            try:
                await asyncio.wait_for(scenario(scene), 1000)
            finally:
                scene.keeping.cancel()
                await asyncio.gather(scene.keeping, return_exceptions=True)
                scene.master._journal.close()
                scene.master._events.close()

        loop = FakeTime()
        try:
            loop.run_until_complete(both())
        finally:
            loop.close()

    return run


def busy(scene: Scene) -> None:
    """Something that a status tells."""
    scene.master.global_step += 1


def test_written_when_something_has_changed_and_not_else(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(100)
        assert len(scene.cluster.patches) == 1
        busy(scene)
        await asyncio.sleep(100)
        assert len(scene.cluster.patches) == 2
        assert scene.cluster.status()["step"] == 1

    play(scenario)


def test_a_sign_of_life_where_nothing_changes(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(900)
        moments = [moment for moment, _ in scene.cluster.patches]
        assert [round(later - sooner, -1) for sooner, later in pairwise(moments)] == [120] * 7
        assert {*scene.cluster.patches[-1][1]} == {"status.json"}

    play(scenario)


def test_at_most_every_two_seconds_and_the_snapshot_half_as_often(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(1000):
            busy(scene)
            # Each is in the snapshot too.
            scene.master.do(ScaleRole(role="worker", target=2 + scene.master.global_step % 2))
            await asyncio.sleep(0.1)

    seen: list[tuple[float, dict[str, str]]] = []

    async def kept(scene: Scene) -> None:
        await scenario(scene)
        seen.extend(scene.cluster.patches)

    play(kept)
    moments = [moment for moment, _ in seen]
    assert 45 <= len(moments) <= 51
    assert min(later - sooner for sooner, later in pairwise(moments)) >= 2.0 - 1e-6
    snapshots = [moment for moment, data in seen if "state.json" in data]
    assert min(later - sooner for sooner, later in pairwise(snapshots)) >= 4.0 - 1e-6


def test_a_snapshot_that_another_master_can_go_on_from(play: Play, tmp_path: Path, nowhere: Any) -> None:
    async def scenario(scene: Scene) -> None:
        scene.master.do(ScaleRole(role="worker", target=5))
        await scene.sync.write()
        other = Master(spec=SPEC, folder=tmp_path / "other", platform=nowhere, token="t", environment={})
        other.recover(scene.cluster.data["state.json"])
        assert other.state.roster.targets["worker"] == 5
        other._journal.close()
        other._events.close()

    (tmp_path / "other").mkdir()
    play(scenario)


def test_desired_count_is_applied_and_reported_at_once(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        before = asyncio.get_running_loop().time()
        scene.cluster.desire(Desired(generation=7, nodes={"worker": 4}))
        await asyncio.sleep(0.001)
        assert scene.master.state.roster.targets["worker"] == 4
        status = scene.cluster.status()
        assert status["observedGeneration"] == 7
        assert status["desiredResult"] == {
            "message": "from 2 to 4 workers",
            "error": "",
            "ignoredVictims": {},
        }
        assert scene.cluster.patches[-1][0] - before < 0.01

    play(scenario)


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ({"ps": 3}, "parameter servers of a program"),
        ({"worker": 0}, "at least 1"),
        ({"worker": 9, "chief": 1}, "'chief' is not a role that can be scaled: worker, ps"),
        ({"workers": 3}, "Did you mean worker"),
    ],
)
def test_desired_count_out_of_range_is_refused_with_the_reason(
    play: Play, nodes: dict[str, int], problem: str
) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        scene.cluster.desire(Desired(generation=3, nodes=nodes))
        await asyncio.sleep(1)
        assert scene.cluster.status()["observedGeneration"] == 3
        assert problem.lower() in scene.cluster.status()["desiredResult"]["error"].lower()
        assert scene.master.state.roster.targets["worker"] == 2

    play(scenario)


@pytest.mark.parametrize("text", ["no json", "[1, 2]", '{"nodes": {"worker": "many"}}', '{"version": 99}'])
def test_unreadable_desired_is_reported_and_changes_nothing(play: Play, text: str) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        scene.cluster.desire(text)
        await asyncio.sleep(10)
        assert scene.master.state.roster.targets["worker"] == 2
        assert "cannot be read" in scene.cluster.status()["desiredResult"]["error"]
        scene.cluster.desire(Desired(generation=2, nodes={"worker": 3}))
        await asyncio.sleep(10)
        assert scene.master.state.roster.targets["worker"] == 3
        assert not scene.cluster.status()["desiredResult"]["error"]

    play(scenario)


@pytest.mark.parametrize("text", ["", "{}"])
def test_empty_desired_sizes_change_nothing(play: Play, text: str) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        before = len(scene.cluster.patches)
        scene.cluster.desire(text)
        await asyncio.sleep(10)
        assert len(scene.cluster.patches) == before

    play(scenario)


def test_desired_is_applied_once(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        scene.cluster.desire(Desired(generation=1, nodes={"worker": 4}))
        await asyncio.sleep(10)
        scene.master.do(ScaleRole(role="worker", target=3))
        # The record changes for other reasons: the desired state is the same.
        busy(scene)
        await asyncio.sleep(10)
        assert scene.master.state.roster.targets["worker"] == 3

    play(scenario)


def test_desired_victims_are_drained_and_unknown_ones_reported(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        roster = scene.master.state.roster
        roster.wanted()
        scene.cluster.desire(Desired(generation=1, nodes={"worker": 1}, victims=("worker-0", "worker-9")))
        await asyncio.sleep(1)
        assert [node.name for node in roster.nodes.values() if node.draining] == ["worker-0"]
        result = scene.cluster.status()["desiredResult"]
        assert result["message"] == "from 2 to 1 workers (draining worker-0)"
        assert result["ignoredVictims"].keys() == {"worker-9"}
        assert "no node of that name" in result["ignoredVictims"]["worker-9"]

    play(scenario)


def test_restarted_master_reports_the_generation_again_and_changes_nothing(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        scene.master.state.roster.wanted()
        scene.cluster.desire(Desired(generation=5, nodes={"worker": 1}, victims=("worker-0",)))
        await asyncio.sleep(1)
        scene.keeping.cancel()
        before = scene.master.state.roster.snapshot()
        again = RecordSync(scene.cluster, scene.master, scene.writer)  # type: ignore[arg-type]
        scene.keeping = asyncio.create_task(again.run())
        await asyncio.sleep(1)
        assert scene.cluster.status()["observedGeneration"] == 5
        assert scene.cluster.status()["desiredResult"] == {"message": "", "error": "", "ignoredVictims": {}}
        assert scene.master.state.roster.snapshot() == before

    play(scenario)


def test_desired_stop_stops_the_job(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        scene.cluster.desire(Desired(generation=4, stop="it is late"))
        await asyncio.sleep(1)
        assert scene.master.state.stopping or scene.master.state.outcome == "stopped"
        assert "it is late" in scene.cluster.status()["desiredResult"]["message"]

    play(scenario)


def test_desired_pause_is_answered_when_everything_is_saved(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(3)
        assert not scene.cluster.status()["readyToPause"]
        scene.cluster.desire(Desired(generation=4, pause="the job is suspended"))
        await asyncio.sleep(1)
        status = scene.cluster.status()
        assert (status["readyToPause"], status["observedGeneration"]) == (True, 4)
        # Nodes stay: it is for the controller to delete them.
        assert not scene.master.state.stopping
        scene.cluster.desire(Desired(generation=5, nodes={"worker": 2}))
        await asyncio.sleep(1)
        assert not scene.cluster.status()["readyToPause"]

    play(scenario)


def test_ends_when_the_record_is_deleted(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(100)
        assert not scene.keeping.done()
        scene.cluster.delete()
        await asyncio.sleep(1)
        assert scene.keeping.done()

    play(scenario)


def test_a_record_that_cannot_be_written_now_is_written_later(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        scene.cluster.refusals = [ClusterError("too large", status=413, reason="")]
        busy(scene)
        await asyncio.sleep(3)
        assert not scene.cluster.refusals
        await asyncio.sleep(3)
        assert scene.cluster.status()["step"] == 1

    play(scenario)


def test_figures_of_servers_are_kept_as_far_as_there_is_room(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        for tables, kept in ((3, 3), (5000, 0)):
            figures = ps_pb2.Figures(
                seconds=1.0, tables=[ps_pb2.TableFigures(table=f"t{n}", rows=n) for n in range(tables)]
            )
            scene.master.figures.take({0: ps_pb2.ServerStatusReply(figures=figures)}, {0: "ps-0"})
            await scene.sync.write()
            (server,) = scene.cluster.status()["servers"]
            assert (server["name"], len(server["tables"])) == ("ps-0", kept)
            assert server["rows"] == sum(range(tables))

    play(scenario)


def test_the_last_word_is_tried_again_for_a_while(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        scene.keeping.cancel()
        busy(scene)
        scene.cluster.refusals = [ClusterError("not now", status=403, reason="")] * 5
        assert await scene.sync.write_final()
        assert scene.cluster.status()["step"] == 1

    play(scenario)


def test_outcome_is_written_without_room_for_the_rest(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.sync.write()
        scene.keeping.cancel()
        scene.master.state.ending.finish("succeeded")
        scene.cluster.refuses = lambda data: (
            ClusterError("too large", status=422, reason="Invalid") if data.get("state.json") else None
        )
        assert await scene.sync.write_final()
        assert scene.cluster.status()["state"] == "succeeded"
        assert scene.cluster.status()["audit"]["exact"]
        # Of a job that is over: it takes the room, and no master continues from it.
        assert "state.json" not in scene.cluster.data

    play(scenario)


@pytest.mark.parametrize("status", [403, 413, 422])
def test_a_last_word_that_is_refused_for_good_is_no_error(play: Play, status: int) -> None:
    async def scenario(scene: Scene) -> None:
        scene.keeping.cancel()
        scene.cluster.refuses = lambda data: ClusterError("never", status=status, reason="")
        assert not await scene.sync.write_final()
        assert not await report_failure(scene.writer, "no room")

    play(scenario)


def test_size_of_job_record_is_independent_of_evaluations(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        lengths = []
        for count in (1_000, 20_000):
            scene.master.state.evaluations.results = [
                {"step": n, "epoch": n, "metrics": {"loss": 0.123456789, "auc": 0.123456789}}
                for n in range(count)
            ]
            await scene.sync.write()
            lengths.append(len(json.dumps(scene.cluster.patches[-1][1])))
        assert lengths[1] < 1.1 * lengths[0] < 200_000

    play(scenario)
