"""Derives the directive of a node from the state of the job: the complete desired state, every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.master.job_state import JobState
from elasticdl.wire import master_pb2

# Directives are sent often; who needs older ones asks for the history.
_EPOCHS_SENT = 3


def epoch_ends(epochs: list[dict[str, Any]]) -> list[master_pb2.EpochEnd]:
    return [master_pb2.EpochEnd(epoch=e["epoch"], metrics=e["metrics"], loss=e["loss"]) for e in epochs]


@dataclass(frozen=True)
class NodePart:
    """The fields that differ between the directives of nodes."""

    drain: bool
    leads: bool
    task: str
    # (lease id, new end) of shards that others wait for.
    truncations: tuple[tuple[int, int], ...]


def node_part(state: JobState, name: str, *, leader: str) -> NodePart:
    """`leader`: the name of the node that does what only one must do."""
    node = state.roster.nodes.get(name)
    return NodePart(
        drain=node is None or node.draining or not node.alive,
        leads=name == leader,
        task=state.task if name == leader else "",
        truncations=tuple(state.work.proposals_to(name)),
    )


def common_directive(state: JobState, *, save_to: str) -> master_pb2.Directive:
    """Returns the common part of all directives. `save_to`: where a worker that owns the model writes it at the present
    barrier.
    """
    evaluation, barrier = state.evaluation, state.barrier
    can_evaluate = evaluation is not None and state.ledger.leasable(evaluation.dataset)
    return master_pb2.Directive(
        generation=state.generation,
        ps_addresses=state.ps_addresses(),
        ps_incarnations=state.ps_incarnations(),
        ps_map=state.placing.map.to_wire() if state.placing.map is not None else None,
        restore_from=state.restore_from,
        first_step=state.first_step,
        barrier_requested=barrier.number if barrier else state.cycle.passed,
        barrier_passed=state.cycle.passed,
        barrier_save_to=save_to if barrier and barrier.save and state.plan.worker_owns_state else "",
        evaluation=evaluation.number if evaluation and can_evaluate else 0,
        evaluation_step=evaluation.step if evaluation else 0,
        evaluation_to_finish=evaluation.number if evaluation and state.evaluations.waits_for_finisher else 0,
        epochs_ended=epoch_ends(state.epochs_ended[-_EPOCHS_SENT:]),
        finished=bool(state.outcome),
        saved=state.saved is not None,
    )


def combine(common: master_pb2.Directive, part: NodePart) -> master_pb2.Directive:
    directive = master_pb2.Directive()
    directive.CopyFrom(common)
    directive.drain = part.drain
    directive.leader = part.leads
    directive.task = part.task
    for lease, end in part.truncations:
        directive.truncations.add(lease_id=lease, end=end)
    return directive


def directive_for(state: JobState, name: str, *, save_to: str) -> master_pb2.Directive:
    leader = state.leader()
    part = node_part(state, name, leader=leader.name if leader is not None else "")
    return combine(common_directive(state, save_to=save_to), part)
