"""Losing the model: whose end is a loss, and how the job goes back to its last checkpoint.

A process that holds a part of the model dies: a parameter server, or the only worker where there are none. Then the
generation grows: the ledger goes back to the last checkpoint, everybody drops what is older, and the audit counts what
has to be trained again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticdl.master.dataset_names import EVALUATION, TRAINING
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.lifecycle.schedule import at_epoch_end, mark

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState


def lost_with(state: JobState, node: Node) -> bool:
    """A node has ended, and with it something of the model that nobody else has."""
    if state.training_over and state.task != "export":
        return False
    if node.role == "ps":
        return state.placing.lost(node)
    if state.plan.allreduce:
        return state.steps.forget(node.name)
    # The worker's own model is worth nothing before its first batch is done.
    return state.plan.worker_owns_state and (state.ledger.steps > 0 or state.generation > 1)


def lose_model(state: JobState, *, above: int = 0) -> None:
    """Everybody begins again from the last checkpoint, in a new generation, above all that there were."""
    state.generation = max(state.generation, above) + 1
    state.reclaim.forget()
    state.placing.forget()
    if state.cut is not None:
        # Some may have reached it already: its number must not come again.
        state.cuts_passed = state.cut.number
        state.cut = None
    state.saving = None
    if state.evaluation is not None:
        state.ledger.remove(state.evaluation.dataset)
        state.evaluation = None
    state.truncations.clear()
    if TRAINING in state.sizes:
        baseline = state.saved.ledger if state.saved else None
        state.ledger.rollback(baseline)
    state.steps.lose()
    for name in state.ledger.datasets():
        if name.startswith(f"{EVALUATION}-"):
            state.ledger.remove(name)
    state.restore_from = state.saved.path if state.saved else ""
    state.first_step = state.saved.step if state.saved else 0
    state.evaluated_mark = mark(state, state.plan.evaluation_steps)
    state.saved_mark = mark(state, state.plan.checkpoint_steps)
    epoch = state.ledger.epoch(TRAINING) if TRAINING in state.sizes else 0
    # A checkpoint of the end of an epoch is behind that end, unless its evaluation was lost on the way.
    evaluated = not state.plan.evaluates or any(r["epoch"] == epoch for r in state.results)
    behind = TRAINING in state.sizes and at_epoch_end(state) and evaluated
    ended = epoch if behind else epoch - 1
    state.cut_epoch = min(state.cut_epoch, ended)
    state.told_epoch = min(state.told_epoch, ended)
    state.epochs_ended = [e for e in state.epochs_ended if e["epoch"] < epoch]
    state.training_over = False
    state.task = ""
