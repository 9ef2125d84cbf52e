"""A job in miniature: the real state machine, with workers that are a few lines of Python and can be killed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.bucket_placement import AdvanceMigration
from elasticdl.master.commands.checkpoints import FinishCheckpoint, PassBarrier, ReachBarrier
from elasticdl.master.commands.codec import decode, encode
from elasticdl.master.commands.command import Command
from elasticdl.master.commands.evaluations import (
    ClaimEvaluation,
    FinishEvaluation,
    JournaledStates,
    ReportEvaluation,
)
from elasticdl.master.commands.job import FinishTask
from elasticdl.master.commands.nodes import JoinNode, ObserveNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards, ReportProgress, TruncateLease
from elasticdl.master.job_state import JobState
from elasticdl.master.lifecycle.evaluation import journaled
from elasticdl.master.master import Master
from elasticdl.master.services.directives import directive_for
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform
from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile
from elasticdl.wire import master_pb2
from tests.master.fake_time import Clock

R = TypeVar("R")

TOKEN = "a token for tests"


@dataclass
class ToyWorker:
    name: str
    leases: list[Any] = field(default_factory=list)
    requests: int = 0
    reports: int = 0
    barrier: int = 0


class ToyJob:
    """Drives a `JobState` the way the master does, one small step at a time, and keeps its journal."""

    make_worker = ToyWorker

    def __init__(self, plan: JobSettings, *, sizes: dict[str, int] | None = None) -> None:
        self.plan = plan
        self.state = JobState(plan)
        self.journal: list[str] = []
        self.sizes = sizes or {"training": 100}
        self.workers: dict[str, ToyWorker] = {}
        self.trained: list[tuple[int, int]] = []

    def do(self, command: Command[R]) -> R:
        result = self.state.apply(command)
        # Through JSON, as the real journal: what does not survive that is a defect.
        self.journal.append(json.dumps(encode(command)))
        return result

    def replayed(self) -> JobState:
        state = JobState(self.plan)
        for line in self.journal:
            state.apply(decode(json.loads(line)))
        return state

    # -- the platform ----------------------------------------------------------------------------------------

    def start_nodes(self) -> None:
        for node in self.state.roster.wanted():
            self.do(JoinNode(node=node.name, incarnation=f"i-{node.name}", address=f"here:{node.number}"))
            if node.role == "worker":
                self.workers[node.name] = self.make_worker(node.name)
                for dataset, size in sorted(self.sizes.items()):
                    if dataset not in self.state.sizes:
                        self.do(AnnounceDataset(dataset=dataset, size=size))

    def end(
        self, name: str, reason: EndReason = EndReason.KILLED, exit_code: int | None = None, **more: Any
    ) -> None:
        phase = NodePhase.SUCCEEDED if reason is EndReason.COMPLETED else NodePhase.FAILED
        status = NodeStatus(
            name=name, role=name.split("-")[0], phase=phase, reason=reason, exit_code=exit_code
        )
        self.workers.pop(name, None)
        self.do(ObserveNode(status=status, **more))

    # -- the workers -----------------------------------------------------------------------------------------

    def work(self, worker: ToyWorker) -> bool:
        """One thing that a worker would do now. False if it can only wait."""
        directive = directive_for(self.state, worker.name, save_to="somewhere")
        if directive.finished:
            return False
        if directive.drain:
            self.end(worker.name, EndReason.COMPLETED, 0)
            return True
        if directive.barrier_requested > max(worker.barrier, directive.barrier_passed):
            worker.barrier = directive.barrier_requested
            files = [SavedFile(name="worker.edl", bytes=1, crc32=1)] if directive.barrier_save_to else []
            self.do(ReachBarrier(worker=worker.name, barrier=directive.barrier_requested, files=files))
            return True
        if any(self._give_up(worker, one.lease_id, one.end) for one in directive.truncations):
            return True
        if directive.evaluation:
            return self._evaluate(worker, directive.evaluation)
        if directive.evaluation_to_finish:
            self.do(ClaimEvaluation(worker=worker.name, evaluation=directive.evaluation_to_finish))
            evaluation = self.state.evaluation
            assert evaluation is not None
            count = float(evaluation.states["count"][0][0]) if evaluation.states else 0.0
            self.do(FinishEvaluation(evaluation=directive.evaluation_to_finish, metrics={"count": count}))
            return True
        if directive.task:
            self.do(FinishTask(task=directive.task, result="done", error=""))
            return True
        if directive.barrier_requested > directive.barrier_passed:
            return False
        return self._train(worker)

    def _give_up(self, worker: ToyWorker, lease_id: int, end: int) -> bool:
        """Gives up a part of a shard for a waiting worker. False if it refuses."""
        held = {lease.lease_id: lease for lease in self.state.ledger.held_by(worker.name)}
        end = max(end, held[lease_id].position)
        self.do(TruncateLease(worker=worker.name, lease_id=lease_id, end=end))
        return True

    def _lease(self, worker: ToyWorker, dataset: str) -> list[Any]:
        worker.requests += 1
        if not self.state.work.may_lease(dataset, worker.name, worker.requests):
            return []
        leases: list[Any] = self.do(
            LeaseShards(dataset=dataset, worker=worker.name, count=1, request_id=worker.requests)
        )
        return leases

    def _evaluate(self, worker: ToyWorker, number: int) -> bool:
        leases = self._lease(worker, "evaluation")
        for lease in leases:
            states = count_state(lease.end - lease.start)
            self.do(
                ReportEvaluation(
                    worker=worker.name, evaluation=number, lease_id=lease.lease_id, states=states, bad=[]
                )
            )
        return bool(leases)

    def _train(self, worker: ToyWorker) -> bool:
        mine = [x for x in self.state.ledger.held_by(worker.name) if x.dataset == "training"]
        if not mine:
            leases = self._lease(worker, "training")
            return bool(leases) or self.state.work.propose_split("training", worker.name)
        lease = mine[0]
        position = min(lease.position + self.plan.batch_size, lease.end)
        self.trained.append((lease.position, position))
        worker.reports += 1
        self.do(
            ReportProgress(
                worker=worker.name,
                report_id=worker.reports,
                progress=[(lease.lease_id, position, self._batches(lease, position), False)],
                bad=[],
                loss_sum=1.0,
                loss_batches=1,
                stop_training=False,
            )
        )
        return True

    def _batches(self, lease: Any, position: int) -> int:
        batches: int = -(-(position - lease.start) // self.plan.batch_size)
        return batches

    # -- the master ------------------------------------------------------------------------------------------

    def master_step(self) -> bool:
        state = self.state
        if state.barrier is not None and state.cycle.is_complete:
            self.do(PassBarrier(barrier=state.barrier.number))
            return True
        if state.cycle.pending is not None:
            self.do(
                FinishCheckpoint(
                    barrier=state.cycle.pending.barrier, path=f"version-{state.cycle.pending.step}"
                )
            )
            return True
        return self._move()

    def _move(self) -> bool:
        """Servers do what the map asks of them, and say so."""
        placing = self.state.placing
        joined = {node.slot: node.incarnation for node in self.state.roster.alive("ps")}
        if placing.map is None or not (placing.handing_over or (placing.moving and not placing.frozen)):
            return False
        version = placing.map.version
        self.do(
            AdvanceMigration(
                version=version,
                filled=[
                    (bucket, server, joined.get(server, ""))
                    for bucket, server in placing.map.migrating.items()
                ],
                taken=list(placing.map.handover),
            )
        )
        return placing.map is None or placing.map.version != version

    def run(
        self, *, random_source: random.Random | None = None, chaos: Callable[[], None] | None = None
    ) -> None:
        """To the end of the job, in any order that could happen."""
        choose = random_source or random.Random(0)
        for _ in range(100_000):
            if self.state.outcome:
                return
            self.start_nodes()
            if chaos is not None:
                chaos()
                self.start_nodes()
            steps: list[Callable[[], bool]] = [self.master_step]
            steps += [lambda w=w: self.work(w) for w in self.workers.values()]  # type: ignore[misc]
            choose.shuffle(steps)
            if not any(step() for step in steps) and not self.state.outcome:
                raise AssertionError(f"the job hangs: {self.state.snapshot()}")
        raise AssertionError("the job does not end")


def count_state(samples: int) -> JournaledStates:
    array = np.array([float(samples)])
    tensor = master_pb2.Tensor(dtype="float64", shape=[1], data=array.tobytes())
    return journaled([master_pb2.MetricState(metric="count", states=[tensor])])


@pytest.fixture
def toy_job() -> Callable[..., ToyJob]:
    return ToyJob


class Nowhere(Platform):
    """A platform on which nothing ever happens: the decision is asked for directly."""

    async def start(self, request: NodeRequest) -> None: ...

    async def stop(self, name: str, *, grace_seconds: float) -> None: ...

    async def nodes(self) -> list[NodeStatus]:
        return []

    async def events(self) -> AsyncIterator[NodeStatus]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    async def close(self) -> None: ...


@pytest.fixture
def nowhere() -> Platform:
    return Nowhere()


@pytest.fixture
def stopped(nowhere: Platform, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of nodes that the platform was asked to stop."""
    names: list[str] = []

    async def stop(name: str, *, grace_seconds: float) -> None:
        names.append(name)

    monkeypatch.setattr(nowhere, "stop", stop)
    return names


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def new_master(tmp_path: Path, clock: Clock, nowhere: Platform) -> Iterator[Callable[..., Master]]:
    """A master of the job that these flags describe, at its beginning; no platform runs its nodes."""
    made: list[Master] = []

    def make(**flags: Any) -> Master:
        files = {"model_zoo": "zoo", "model_def": "a.b.c", "training_data": "data"}
        spec = JobSpec.build(**{"job_name": "new", **files, **flags})
        master = Master(
            spec=spec, folder=tmp_path, platform=nowhere, token=TOKEN, environment={}, clock=clock
        )
        made.append(master)
        master.recover()
        return master

    yield make
    for master in made:
        master._journal.close()
        master._events.close()
