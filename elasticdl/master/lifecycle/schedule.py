"""The course of a job: when an evaluation or a checkpoint is due, when an epoch is over, when all is.

Called after every command, these rules look at the state and move it on as far as it goes by itself. The
order at the end of an epoch: a cut; from it the checkpoint and the evaluation; then the leader's callbacks
hear of the end, and may ask for the training to end; then the next epoch opens, or the model is exported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticdl.master.checkpointing.barrier_records import Cut
from elasticdl.master.dataset_names import EVALUATION, PREDICTION, TRAINING
from elasticdl.master.programs.program_completion import settle_program

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState

# Epoch ends are told to the callbacks of workers, and to those that come late all that are kept: some megabytes.
_EPOCHS_KEPT = 10_000
# The task that the end of an epoch is for the leader, with the epoch's number behind it.
EPOCH_TASK = "epoch-"


def mark(state: JobState, every: int) -> int:
    """How many times so many steps have been reached."""
    return state.ledger.steps // every if every else 0


def at_epoch_end(state: JobState) -> bool:
    return state.ledger.epoch_done(TRAINING) or state.ledger.finished(TRAINING)


def saved_at_epoch_end(state: JobState) -> bool:
    """Where nothing else is said, a checkpoint is taken at the end of each epoch."""
    return state.plan.saves and (not state.plan.checkpoint_steps or state.ledger.finished(TRAINING))


def settle(state: JobState) -> None:
    if state.gathering.active and not state.outcome:
        # What it knows is old: nothing follows from it yet.
        return
    # First, as a cut may have to wait for it.
    state.placing.settle()
    if not state.outcome:
        if state.plan.runs_command:
            settle_program(state)
        elif state.plan.kind == "train":
            _settle_training(state)
        elif state.stopping:
            state.outcome = "stopped"
        elif state.plan.kind == "evaluate":
            state.outcome = "succeeded" if state.results else ""
        elif PREDICTION in state.sizes and state.ledger.finished(PREDICTION) and not state.task:
            if state.plan.has_output:
                state.task = "merge"
            else:
                state.outcome = "succeeded"
    state.roster.closing = bool(state.outcome)
    state.roster.wanted()


def _settle_training(state: JobState) -> None:
    if state.stopping and (
        state.stop_saved
        or not state.plan.saves
        or TRAINING not in state.sizes
        or state.ledger.steps == state.first_step
    ):
        state.outcome = "stopped"
        return
    if TRAINING not in state.sizes or state.training_over:
        return
    if state.plan.evaluates and EVALUATION not in state.sizes:
        return
    if state.plan.max_step and state.ledger.steps >= state.plan.max_step:
        state.ledger.stop(TRAINING)
    if state.cut is None and state.saving is None:
        _ask_for_cut(state)
    if state.cut is None and at_epoch_end(state) and state.evaluation is None:
        _close_epoch(state)


def _ask_for_cut(state: JobState) -> None:
    evaluate = save = flush = False
    if state.stopping:
        save = state.plan.saves and not state.stop_saved
    elif at_epoch_end(state):
        if state.cut_epoch < state.ledger.epoch(TRAINING) and state.evaluation is None:
            evaluate = state.plan.evaluates
            save = saved_at_epoch_end(state)
            # What is exported, or evaluated last, has all gradients. A checkpoint has them anyway.
            flush = (
                state.plan.gradients_wait
                and state.ledger.finished(TRAINING)
                and (evaluate or state.plan.has_output)
            )
            if not evaluate and not save and not flush:
                state.cut_epoch = state.ledger.epoch(TRAINING)
    else:
        evaluate = (
            state.plan.evaluates
            and state.evaluation is None
            and mark(state, state.plan.evaluation_steps) > state.evaluated_mark
        )
        save = mark(state, state.plan.checkpoint_steps) > state.saved_mark
    # Of a model that was restored nothing moves before a worker has come to a batch, and none may before a cut.
    if state.placing.has_a_turn and not state.stopping and state.ledger.steps > state.first_step:
        return
    if evaluate or save or flush:
        state.cut = Cut(number=state.cuts_passed + 1, evaluate=evaluate, save=save, flush=flush)
        state.truncations.clear()


def _close_epoch(state: JobState) -> None:
    epoch = state.ledger.epoch(TRAINING)
    if state.cut_epoch < epoch or state.saving is not None:
        return
    if not state.epochs_ended or state.epochs_ended[-1]["epoch"] < epoch:
        metrics: dict[str, float] = next(
            (r["metrics"] for r in reversed(state.results) if r["epoch"] == epoch), {}
        )
        loss, batches = state.epoch_loss.get(epoch, (0.0, 0))
        state.epochs_ended.append(
            {"epoch": epoch, "metrics": metrics, "loss": loss / batches if batches else 0.0}
        )
        del state.epochs_ended[:-_EPOCHS_KEPT]
    if state.told_epoch < epoch:
        # The leader's callbacks hear of the end of the epoch before the next begins: they may end the
        # training.
        state.task = f"{EPOCH_TASK}{epoch}"
        return
    if state.ledger.finished(TRAINING):
        state.training_over = True
        if state.plan.has_output:
            state.task = "export"
        else:
            state.outcome = "succeeded"
    else:
        state.ledger.open_next_epoch(TRAINING)
