"""A job whose workers run a program of the user's own: who is replaced, who is done, and when the job is."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest

from elasticdl.jobs.audit import render
from elasticdl.master.commands.codec import decode, encode
from elasticdl.master.commands.command import Command
from elasticdl.master.commands.nodes import ObserveNode, ReportHungNode, ScaleRole
from elasticdl.master.commands.programs import FailShard, OpenDataset
from elasticdl.master.commands.shards import LeaseShards, ReportProgress
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus

PLAN = JobSettings(
    program="command",
    workers=2,
    other_roles=(("ps", 1), ("chief", 1), ("evaluator", 1)),
    addressed=True,
    max_node_failures=1,
    max_shard_failures=1,
)


R = TypeVar("R")


class Programs:
    """Drives the state as the master does, and keeps its journal."""

    def __init__(self, plan: JobSettings = PLAN) -> None:
        self.plan = plan
        self.state = JobState(plan)
        self.journal: list[str] = []
        self.start()

    def do(self, command: Command[R]) -> R:
        result = self.state.apply(command)
        self.journal.append(json.dumps(encode(command)))
        return result

    def start(self) -> None:
        for node in self.state.roster.wanted():
            self.observe(NodeStatus(name=node.name, role=node.role, phase=NodePhase.RUNNING))

    def observe(self, status: NodeStatus) -> None:
        self.do(ObserveNode(status=status))

    def end(self, name: str, reason: EndReason = EndReason.COMPLETED) -> None:
        code = {EndReason.COMPLETED: 0, EndReason.ERROR: 1}.get(reason)
        phase = NodePhase.SUCCEEDED if reason is EndReason.COMPLETED else NodePhase.FAILED
        self.observe(
            NodeStatus(name=name, role=name.split("-")[0], phase=phase, reason=reason, exit_code=code)
        )

    def alive(self) -> list[str]:
        return sorted(n.name for n in self.state.roster.nodes.values() if n.alive)

    def announce(self, **changes: Any) -> None:
        said: dict[str, Any] = {
            "name": "d",
            "size": 10,
            "batch_size": 2,
            "epochs": 2,
            "minibatches_per_shard": 2,
        }
        self.do(OpenDataset(announcement=DatasetAnnouncement(**{**said, **changes})))

    def fetch(self, worker: str) -> Any:
        request = self.state.ledger.next_lease
        if not self.state.work.may_lease("d", worker, request):
            return None
        return self.do(LeaseShards(dataset="d", worker=worker, count=1, request_id=request))[0]

    def report(self, lease: Any, position: int | None = None) -> list[int]:
        end = lease.end if position is None else position
        gone: list[int] = self.do(
            ReportProgress(
                worker=lease.worker,
                report_id=0,
                progress=[(lease.lease_id, end, 1, False)],
                bad=[],
                loss_sum=0.0,
                loss_batches=0,
                stop_training=False,
            )
        )
        return gone

    def replayed(self) -> JobState:
        state = JobState(self.plan)
        for line in self.journal:
            state.apply(decode(json.loads(line)))
        return state


def test_all_roles_are_started() -> None:
    assert Programs().alive() == ["chief-0", "evaluator-0", "ps-0", "worker-0", "worker-1"]


def test_job_succeeds_when_chief_and_workers_have_ended() -> None:
    job = Programs()
    for name in ("worker-1", "chief-0"):
        job.end(name)
        assert job.state.outcome == ""
    job.end("worker-0")
    assert job.state.outcome == "succeeded"
    assert job.alive() == ["evaluator-0", "ps-0"]


def test_completed_node_is_not_replaced() -> None:
    job = Programs()
    job.end("worker-0")
    job.end("evaluator-0")
    assert job.alive() == ["chief-0", "ps-0", "worker-1"]


@pytest.mark.parametrize("name", ["chief-0", "evaluator-0", "ps-0", "worker-1"])
def test_killed_node_is_replaced_in_its_slot(name: str) -> None:
    job = Programs()
    slot = job.state.roster.nodes[name].slot
    job.end(name, EndReason.KILLED)
    role = name.split("-")[0]
    number = {"worker": 2}.get(role, 1)
    new = job.state.roster.nodes[f"{role}-{number}"]
    assert new.alive
    assert new.slot == slot


def test_lost_parameter_server_restarts_finished_chief() -> None:
    job = Programs()
    job.end("chief-0")
    job.end("ps-0", EndReason.KILLED)
    assert job.alive() == ["chief-1", "evaluator-0", "ps-1", "worker-0", "worker-1"]
    for name in ("worker-0", "worker-1"):
        job.end(name)
    assert job.state.outcome == ""
    job.start()
    job.end("chief-1")
    assert job.state.outcome == "succeeded"


def test_a_program_that_keeps_failing_fails_the_job() -> None:
    job = Programs()
    job.end("worker-0", EndReason.ERROR)
    assert job.state.outcome == ""
    job.start()
    job.end("worker-2", EndReason.ERROR)
    assert job.state.outcome == "failed"
    assert "worker-2 ended with exit code 1" in job.state.message


def test_a_program_that_hangs_has_failed() -> None:
    job = Programs()
    job.do(ReportHungNode(node="worker-0"))
    job.end("worker-0", EndReason.STOPPED)
    job.start()
    job.do(ReportHungNode(node="worker-2"))
    assert job.state.outcome == "failed"
    assert "--start_timeout_seconds" in job.state.message


def test_every_sample_is_done_in_spite_of_deaths() -> None:
    job = Programs()
    job.announce()
    first = job.fetch("worker-0")
    job.report(first, first.start + 2)
    job.end("worker-0", EndReason.KILLED)
    job.start()
    done = []
    while (lease := job.fetch("worker-2")) is not None:
        assert job.report(lease) == []
        done.append((lease.epoch, lease.start, lease.end))
    assert done == [(0, 2, 4), (0, 4, 8), (0, 8, 10), (1, 0, 4), (1, 4, 8), (1, 8, 10)]
    assert audit_ledger(job.state.ledger).exact
    assert job.replayed().snapshot() == job.state.snapshot()


def test_a_worker_waits_only_while_something_can_come_back_to_it() -> None:
    job = Programs(JobSettings(program="command", workers=2))
    job.announce(size=4, epochs=1, minibatches_per_shard=1)
    data = job.state.data
    mine, theirs = job.fetch("worker-0"), job.fetch("worker-1")
    # It may sit on half a batch: only the end of its data makes it report that.
    assert data.may_end("d", "worker-0")
    job.report(mine)
    assert not data.may_end("d", "worker-0")
    job.end("worker-1", EndReason.KILLED)
    assert job.fetch("worker-0").start == theirs.start


def test_drained_worker_gets_the_end() -> None:
    job = Programs()
    job.announce()
    job.do(ScaleRole(role="worker", target=1))
    assert job.fetch("worker-1") is None
    assert job.state.data.may_end("d", "worker-1")
    job.end("worker-1")
    job.do(ScaleRole(role="worker", target=2))
    assert "worker-2" in job.alive()


def test_report_of_dead_worker_is_rejected() -> None:
    job = Programs()
    job.announce()
    lease = job.fetch("worker-0")
    job.end("worker-0", EndReason.KILLED)
    assert job.report(lease) == [lease.lease_id]
    assert job.state.ledger.samples_done("d") == 0


def test_a_shard_that_the_program_cannot_do_fails_the_job_in_the_end() -> None:
    job = Programs()
    job.announce()
    for _ in range(2):
        lease = job.fetch("worker-0")
        job.do(FailShard(lease_id=lease.lease_id, message="cannot decode"))
    assert job.state.outcome == "failed"
    assert "cannot decode" in job.state.message


def test_a_program_may_end_before_its_data() -> None:
    job = Programs()
    job.announce()
    job.report(job.fetch("worker-0"))
    for name in ("chief-0", "worker-0", "worker-1"):
        job.end(name)
    audit = audit_ledger(job.state.ledger)
    assert job.state.outcome == "succeeded"
    assert audit.exact
    assert audit.rows[0].stopped


@pytest.mark.parametrize("name", ["chief-0", "worker-0"])
@pytest.mark.parametrize("reason", [EndReason.KILLED, EndReason.COMPLETED])
def test_drained_node_that_exits_early_is_replaced_after_its_end(name: str, reason: EndReason) -> None:
    """Its place has one address, so the next one comes when it has gone. The second reason is what a platform makes of
    its exit code where the clocks of two machines differ.
    """
    job = Programs()
    assert name.rpartition("-")[0] not in job.plan.replaced_early
    job.announce(epochs=1)
    lease = job.fetch(name)
    job.observe(NodeStatus(name=name, role=name.rpartition("-")[0], phase=NodePhase.LEAVING))
    assert job.fetch(name) is None
    assert job.state.data.may_end("d", name)
    assert name in job.alive()
    assert job.state.roster.wanted() == [], "no other node is at its address"
    job.report(lease)
    # A master that comes back knows it too.
    assert job.replayed().roster.nodes[name].leaving
    restored = JobState(job.plan)
    restored.restore(json.loads(json.dumps(job.state.snapshot())))
    assert not restored.work.may_lease("d", name, 99)

    others = [other for other in ("chief-0", "worker-0", "worker-1") if other != name]
    while (lease := job.fetch(others[0])) is not None:
        job.report(lease)
    for other in others:
        job.end(other)
    job.end(name, reason)
    assert job.state.outcome == ""
    (next_one,) = job.state.roster.wanted()
    assert next_one.role == name.rpartition("-")[0]
    job.start()
    job.end(next_one.name)
    assert job.state.outcome == "succeeded"
    assert audit_ledger(job.state.ledger).exact


@pytest.mark.parametrize("reason", [EndReason.KILLED, EndReason.ERROR, EndReason.STOPPED])
def test_unreported_samples_of_lost_worker_may_count_twice_on_servers(reason: EndReason) -> None:
    job = Programs()
    job.announce()
    job.announce(name="validation", task_type=2)
    lease = job.fetch("worker-0")
    job.report(lease, lease.start + 1)
    job.end("worker-0", reason)
    found = audit_ledger(job.state.ledger)
    assert found.twice == lease.end - lease.start - 1
    assert audit_ledger(job.replayed().ledger).twice == found.twice
    assert "Up to 3 samples may count twice in the model" in render(found)


def test_worker_that_ends_by_itself_leaves_no_doubt() -> None:
    job = Programs()
    job.announce()
    job.fetch("worker-0")
    job.end("worker-0")
    job.fetch("worker-1")
    job.end("evaluator-0", EndReason.KILLED)
    job.end("ps-0", EndReason.KILLED)
    assert audit_ledger(job.state.ledger).twice == 0


def test_lost_worker_without_parameter_servers_leaves_no_doubt() -> None:
    """What it had learned was in itself."""
    job = Programs(JobSettings(program="command", workers=2))
    job.announce()
    job.fetch("worker-0")
    job.end("worker-0", EndReason.KILLED)
    assert audit_ledger(job.state.ledger).twice == 0
