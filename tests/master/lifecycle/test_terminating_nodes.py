"""Terminating nodes are replaced while they finish what they do, where two can have one place for a while."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.job import StopJob
from elasticdl.master.commands.nodes import JoinNode, ObserveNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards, ReportProgress
from elasticdl.master.job_state import JobState
from elasticdl.master.lifecycle.roster import Node, Roster
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus
from tests.master.node_statuses import node_status

COMMAND = {"job_command": "python train.py"}
DEFINITION = {"model_zoo": "z", "model_def": "a.b.c", "training_data": "/d"}


def status(name: str, phase: NodePhase, reason: EndReason = EndReason.NONE, **more: str | bool) -> NodeStatus:
    return NodeStatus(name=name, role=name.rpartition("-")[0], phase=phase, reason=reason, **more)  # type: ignore[arg-type]


def roster(replaced_early: frozenset[str] = frozenset({"worker"})) -> Roster:
    made = Roster(max_failures=2, targets={"ps": 1, "worker": 2}, replaced_early=replaced_early)
    for node in made.wanted():
        assert made.join(node.name, f"i-{node.name}", "here")
    return made


def wanted(made: Roster) -> list[Node]:
    return made.wanted()


def test_a_leaving_worker_is_replaced_at_once_and_may_finish() -> None:
    made = roster()
    made.observe(status("worker-0", NodePhase.LEAVING))
    (new,) = wanted(made)
    assert (new.name, new.slot) == ("worker-2", 0)
    assert made.nodes["worker-0"].alive
    assert made.nodes["worker-0"].draining
    ended, failure = made.observe(status("worker-0", NodePhase.FAILED, EndReason.KILLED))
    assert ended is not None
    assert failure is None
    assert wanted(made) == [new]


def test_a_parameter_server_is_replaced_when_it_has_gone() -> None:
    made = roster()
    made.observe(status("ps-0", NodePhase.LEAVING))
    assert wanted(made) == []
    made.observe(status("ps-0", NodePhase.FAILED, EndReason.KILLED))
    assert [node.name for node in wanted(made)] == ["ps-1"]


def test_one_that_was_never_there_is_replaced_too() -> None:
    made = roster()
    made.scale("worker", 3)
    (pending,) = wanted(made)
    made.observe(status(pending.name, NodePhase.LEAVING))
    assert [node.name for node in wanted(made)] == ["worker-3"]


@pytest.mark.parametrize(
    ("flags", "roles"),
    [
        ({**DEFINITION, "num_ps": 1, "num_workers": 2}, {"worker"}),
        # The model is in the worker: a second one beside it would train another.
        ({**DEFINITION, "num_workers": 1}, set()),
        ({**COMMAND, "num_workers": 2}, {"worker", "evaluator"}),
        # Two at one address would be mistaken for each other.
        ({**COMMAND, "num_workers": 2, "need_tf_config": True, "num_ps": 1}, set()),
        ({**COMMAND, "num_workers": 2, "need_tf_config": True}, set()),
        # Paddle's know each other, too.
        ({**COMMAND, "num_workers": 2, "num_ps": 1}, set()),
    ],
)
def test_roles_without_own_address_are_replaced_early(flags: dict[str, Any], roles: set[str]) -> None:
    assert JobSettings.of(JobSpec.build(**flags)).replaced_early == roles


def test_message_of_pending_node_is_cleared_when_it_runs() -> None:
    made = Roster(max_failures=2, targets={"worker": 1})
    made.wanted()
    made.observe(status("worker-0", NodePhase.PENDING, message="Unschedulable: 0/3 nodes are available"))
    assert made.nodes["worker-0"].message.startswith("Unschedulable")
    made.observe(status("worker-0", NodePhase.RUNNING))
    assert made.nodes["worker-0"].message == ""


def test_memory_doubles_along_the_line_of_replacements() -> None:
    made = Roster(max_failures=9, targets={"worker": 2})
    made.wanted()
    for number in (0, 2, 3):
        made.observe(status(f"worker-{number}", NodePhase.FAILED, EndReason.OUT_OF_MEMORY))
        made.wanted()
    made.observe(status("worker-4", NodePhase.FAILED, EndReason.KILLED))
    made.wanted()
    assert made.nodes["worker-5"].memory_doublings == 3
    assert made.nodes["worker-1"].memory_doublings == 0


def test_out_of_memory_below_limit_counts_no_failure() -> None:
    made = Roster(max_failures=0, targets={"worker": 1})
    for number in range(3):
        made.wanted()
        ended = status(f"worker-{number}", NodePhase.FAILED, EndReason.OUT_OF_MEMORY, gets_more_memory=True)
        assert made.observe(ended)[1] is None
    made.wanted()
    assert (made.nodes["worker-3"].memory_doublings, made.nodes["worker-3"].failures) == (3, 0)
    words = "killed at its limit of 4Gi; raise --worker_resource_limit"
    _, failure = made.observe(status("worker-3", NodePhase.FAILED, EndReason.OUT_OF_MEMORY, message=words))
    assert failure is not None
    assert f"worker-3 ran out of memory ({words}); this worker has now failed once" in failure.message


def test_memory_that_never_becomes_more_does_not_make_it_endless() -> None:
    made = Roster(max_failures=0, targets={"worker": 1})
    for number in range(100):
        made.wanted()
        ended = status(f"worker-{number}", NodePhase.FAILED, EndReason.OUT_OF_MEMORY, gets_more_memory=True)
        if made.observe(ended)[1] is not None:
            break
    assert number == 10


def test_a_leaving_worker_gets_no_shard() -> None:
    state = JobState(JobSettings(workers=2, servers=1, batch_size=10, shard_size=10))
    for name in ("ps-0", "worker-0", "worker-1"):
        state.apply(JoinNode(node=name, incarnation="i", address="a"))
    state.apply(AnnounceDataset(dataset="training", size=1000))
    assert state.work.may_lease("training", "worker-0", 1)
    leaving = {**vars(status("worker-0", NodePhase.LEAVING)), "phase": "leaving", "reason": ""}
    state.apply(ObserveNode(status=node_status(leaving)))
    assert not state.work.may_lease("training", "worker-0", 1)
    assert state.work.may_lease("training", "worker-1", 1)


def test_without_a_folder_for_all_nothing_is_saved() -> None:
    """On a cluster without --checkpoint_dir: epochs end, and a stop stops, without a checkpoint."""
    on_cluster = JobSpec.build(**DEFINITION, image_name="i", num_ps=1)
    assert not JobSettings.of(on_cluster).saves
    volume = "claim_name=c,mount_path=/v"
    with_folder = JobSpec.build(**DEFINITION, image_name="i", num_ps=1, checkpoint_dir="/v/c", volume=volume)
    assert JobSettings.of(with_folder).saves
    assert JobSettings.of(JobSpec.build(**DEFINITION, num_ps=1)).saves
    state = JobState(JobSettings(workers=1, servers=1, batch_size=10, shard_size=10, epochs=2, saves=False))
    for name in ("ps-0", "worker-0"):
        state.apply(JoinNode(node=name, incarnation="i", address="a"))
    state.apply(AnnounceDataset(dataset="training", size=10))
    (lease,) = state.apply(LeaseShards(dataset="training", worker="worker-0", count=1, request_id=1))
    done: dict[str, Any] = {
        "worker": "worker-0",
        "report_id": 1,
        "bad": [],
        "loss_sum": 0.0,
        "loss_batches": 0,
        "stop_training": False,
    }
    state.apply(ReportProgress(**done, progress=[(lease.lease_id, lease.end, 1, False)]))
    assert state.barrier is None
    assert state.cycle.pending is None
    assert state.task == "epoch-0"
    state.apply(StopJob(reason="enough"))
    assert state.outcome == "stopped"
