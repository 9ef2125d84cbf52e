"""Builds the JobStatus of a running master.

The same status is sent over gRPC, written into the job record on a cluster, and left in the folder of a finished local
job.
"""

from __future__ import annotations

import time

from elasticdl.jobs.desired import Desired
from elasticdl.jobs.status import DesiredResult, Evaluation, JobStatus, NodeReport, RunState
from elasticdl.master.dataset_names import EVALUATION, PREDICTION, TRAINING
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.master import Master
from elasticdl.platforms.platform import NodePhase

# The number of points that a plot on a terminal or a page needs.
_LOSS_POINTS = 200


def job_status(
    master: Master,
    *,
    brief: bool = False,
    observed: Desired | None = None,
    desired_result: DesiredResult | None = None,
) -> JobStatus:
    """Returns the status of this moment.

    `brief`: without the audit, which grows with the epochs, and the tables of servers. `observed`: the desired state
    that the master has acted on, with its result.
    """
    state, plan = master.state, master.plan
    dataset = _main_dataset(state)
    known = dataset in state.ledger.datasets()
    size = state.sizes.get(dataset if dataset != f"{EVALUATION}-1" else EVALUATION, 0)
    epochs = state.ledger.spec(dataset).epochs if known else plan.epochs
    total = size * epochs
    done = state.ledger.samples_done(dataset) if known else 0
    rate = master.rate.per_second(time.monotonic())
    losses = master.losses
    every = max(1, len(losses) // _LOSS_POINTS)
    status = JobStatus(
        job=master.spec.job_name,
        kind=plan.kind,
        program=plan.program,
        dataset=dataset,
        state=_state(state),
        phase=_phase(state),
        message=state.message,
        traceback=state.traceback,
        start_time=master.started,
        now=time.time(),
        epoch=state.ledger.epoch(dataset) if known else 0,
        epochs=epochs,
        dataset_size=size,
        samples_done=done,
        samples_desired=total,
        samples_again=_samples_again(state, dataset) if known else 0,
        straggler_seconds=round(master.supervisor.straggler_time.seconds, 1),
        step=master.global_step or state.ledger.steps,
        samples_per_second=rate,
        remaining_seconds=(total - done) / rate if rate > 0 and total else None,
        loss=losses[-1][1] if losses else None,
        losses=tuple(losses[::every]),
        evaluations=tuple(
            Evaluation(step=one["step"], epoch=one["epoch"], metrics=one["metrics"]) for one in state.results
        ),
        evaluations_omitted=state.results_forgotten,
        remarks=tuple(state.remarks),
        model_generation=state.generation,
        checkpoint=state.saved.path if state.saved else "",
        output=state.task_result,
        tracking=(*master.tracking.report(), *master.tracing.report()),
        nodes=_nodes(master),
        desired_nodes=dict(state.roster.targets),
        observed_generation=observed.generation if observed else 0,
        desired_result=desired_result or DesiredResult(),
        is_ready_to_pause=observed is not None and bool(observed.pause) and not state.awaits_checkpoint,
        non_finite_batches=max(master.figures.refused, master.skipped_batches),
        buckets=state.placing.report(),
        servers=master.figures.reports(),
        audit=None if brief else audit_ledger(state.ledger),
    )
    return status.without_tables() if brief else status


def _samples_again(state: JobState, dataset: str) -> int:
    ledger = state.ledger
    return sum(ledger.again(dataset, epoch) for epoch in ledger.again_epochs(dataset))


def _nodes(master: Master) -> tuple[NodeReport, ...]:
    state, now = master.state, master.clock()
    running = {node.name for node in state.roster.nodes.values() if node.phase is NodePhase.RUNNING}
    master.worker_rates.keep(running)
    return tuple(
        NodeReport(
            name=node.name,
            role=node.role,
            phase=node.phase.value,
            reason=node.reason.value,
            message=master.supervisor.kill_reasons.get(node.name) or node.message,
            is_draining=node.goes,
            has_joined=node.joined,
            leased_shards=state.ledger.leases.count(node.name),
            unresponsive_since_seconds=master.supervisor.unresponsive.since.get(node.name),
            samples_per_second=master.worker_rates.per_second(node.name, now),
        )
        for node in state.roster.nodes.values()
    )


def _state(state: JobState) -> RunState:
    if state.outcome:
        return RunState(state.outcome)
    return RunState.STOPPING if state.stopping else RunState.RUNNING


def _main_dataset(state: JobState) -> str:
    """Returns the data set whose progress is the job's. Of a program's own, it is the one with most to do."""
    if state.plan.runs_command:
        sizes = {name: a.samples * a.epochs for name, a in state.data.announced.items()}
        return max(sizes, key=lambda name: sizes[name], default="")
    return {"train": TRAINING, "predict": PREDICTION}.get(state.plan.kind, f"{EVALUATION}-1")


def _phase(state: JobState) -> str:
    if state.outcome:
        return state.outcome
    if state.plan.runs_command:
        return "stopping" if state.stopping else "running"
    if state.stopping:
        return "saving before the stop"
    if state.task:
        return {"export": "exporting", "merge": "merging the predictions"}.get(state.task, "ending an epoch")
    if not state.sizes:
        return "starting"
    if state.evaluation is not None:
        return "evaluating"
    return {"train": "training", "predict": "predicting"}.get(state.plan.kind, "evaluating")
