"""A job that runs once more, after it was stopped, has failed, or was interrupted with all of its processes.

The journal is the one of the attempts before, so the ledger and the audit are about all attempts together. What was in
processes is gone. A training goes back to its newest checkpoint, and the audit counts what was done since as trained
again. Samples that an evaluation or a prediction has finished stay done, predictions too; an evaluation begins again.
A program with its own training loop gets the shards that were not reported, as after the loss of all its workers.

What ended the attempt before is forgotten: its error, and how often nodes and shards have failed, since the cause may
have been removed. Numbers of nodes, leases and barriers continue.
"""

from __future__ import annotations

from typing import Protocol

from elasticdl.master.allreduce.training_steps import TrainingSteps
from elasticdl.master.checkpointing.checkpoint_cycle import CheckpointCycle
from elasticdl.master.checkpointing.rollback import Rollback
from elasticdl.master.commands.job import ResumeJob
from elasticdl.master.dataset_names import EVALUATION
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.dataset_sizes import DatasetSizes
from elasticdl.master.lifecycle.dispatcher import Dispatcher
from elasticdl.master.lifecycle.evaluations import Evaluations
from elasticdl.master.lifecycle.job_outcome import JobOutcome
from elasticdl.master.lifecycle.roster import Roster
from elasticdl.master.settings import JobSettings


class ResumedState(Protocol):
    """The part of the job's state that a resumption changes."""

    @property
    def plan(self) -> JobSettings: ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def roster(self) -> Roster: ...

    @property
    def ending(self) -> JobOutcome: ...

    @property
    def dataset_sizes(self) -> DatasetSizes: ...

    @property
    def evaluations(self) -> Evaluations: ...

    @property
    def work(self) -> Dispatcher: ...

    @property
    def cycle(self) -> CheckpointCycle: ...

    @property
    def steps(self) -> TrainingSteps: ...

    @property
    def rollback(self) -> Rollback: ...

    def forget_errors(self) -> None: ...


def resume(state: ResumedState, command: ResumeJob) -> None:
    """Applies the command. The same attempt again changes nothing: its master was only restarted."""
    if command.attempt <= state.ending.attempt:
        return
    state.ending.reopen(command.attempt)
    state.forget_errors()
    for name in list(state.roster.nodes):
        state.ledger.forget_worker(name)
        state.work.forget_worker(name)
        state.cycle.forget_worker(name)
        state.evaluations.forget_worker(name)
    state.roster.clear()
    state.cycle.forget_stop()
    if _lost_model(state):
        state.cycle.set_saved(command.saved)
        state.rollback.run()
    # After the rollback, which brings back the ledger of the checkpoint.
    state.ledger.forget_failures()
    if state.plan.kind == "evaluate" and EVALUATION in state.dataset_sizes and not state.evaluations.results:
        state.evaluations.cancel()
        state.evaluations.begin(number=state.cycle.passed + 1, epoch=-1)


def _lost_model(state: ResumedState) -> bool:
    """Whether processes had the model, or the state of the training."""
    plan = state.plan
    if plan.runs_command:
        return plan.allreduce and not state.steps.is_saved
    return plan.kind == "train"
