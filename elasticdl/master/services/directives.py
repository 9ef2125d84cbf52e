"""What the master wants of a node, read off the state of the job: the whole of it, every time."""

from __future__ import annotations

from typing import Any

from elasticdl.master.job_state import JobState
from elasticdl.wire import master_pb2

# Directives are sent often; who needs older ones asks for the history.
_EPOCHS_SENT = 3


def epoch_ends(epochs: list[dict[str, Any]]) -> list[master_pb2.EpochEnd]:
    return [master_pb2.EpochEnd(epoch=e["epoch"], metrics=e["metrics"], loss=e["loss"]) for e in epochs]


def directive_for(state: JobState, name: str, *, save_to: str) -> master_pb2.Directive:
    """`save_to`: where a worker that owns the model writes it at the present barrier."""
    node = state.roster.nodes.get(name)
    over = bool(state.outcome)
    leader = state.leader()
    leads = leader is not None and leader.name == name
    evaluation, barrier = state.evaluation, state.barrier
    can_evaluate = evaluation is not None and state.ledger.leasable(evaluation.dataset)
    return master_pb2.Directive(
        generation=state.generation,
        ps_addresses=state.ps_addresses(),
        ps_incarnations=state.ps_incarnations(),
        ps_map=state.placing.map.to_wire() if state.placing.map is not None else None,
        restore_from=state.restore_from,
        first_step=state.first_step,
        cut_wanted=barrier.number if barrier else state.cycle.passed,
        cut_passed=state.cycle.passed,
        cut_save_to=save_to if barrier and barrier.save and state.plan.worker_owns_state else "",
        evaluation=evaluation.number if evaluation and can_evaluate else 0,
        evaluation_step=evaluation.step if evaluation else 0,
        evaluation_to_finish=evaluation.number if evaluation and state.evaluations.waits_for_finisher else 0,
        truncations=[
            master_pb2.Truncation(lease_id=lease, end=end) for lease, end in state.work.proposals_to(name)
        ],
        drain=node is None or node.draining or not node.alive,
        epochs_ended=epoch_ends(state.epochs_ended[-_EPOCHS_SENT:]),
        task=state.task if leads else "",
        finished=over,
        leader=leads,
        saved=state.saved is not None,
    )
