"""A job as people see it: one JSON document, the same from a running master and from the record of a
finished job.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from elasticdl.master.dataset_names import EVALUATION, PREDICTION, TRAINING
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.audit import Audit
from elasticdl.master.servers.server_metrics import without_tables

if TYPE_CHECKING:
    from elasticdl.master.master import Master

# What a plot on a terminal or a page needs.
_LOSS_POINTS = 200


def job_status(master: Master, *, brief: bool = False) -> dict[str, Any]:
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
    return {
        "job": master.spec.job_name,
        "kind": plan.kind,
        "program": plan.program,
        "dataset": dataset,
        "state": state.outcome or ("stopping" if state.stopping else "running"),
        "phase": _phase(state),
        "message": state.message,
        "traceback": state.traceback,
        "started": master.started,
        "now": time.time(),
        "epoch": state.ledger.epoch(dataset) if known else 0,
        "epochs": epochs,
        "size": size,
        "samples_done": done,
        "samples_total": total,
        "step": master.global_step or state.ledger.steps,
        "samples_per_second": rate,
        "seconds_left": (total - done) / rate if rate > 0 and total else None,
        "loss": losses[-1][1] if losses else None,
        "losses": losses[::every],
        "evaluations": state.results,
        "evaluations_left_out": state.results_forgotten,
        "remarks": state.remarks,
        "generation": state.generation,
        "checkpoint": state.saved.path if state.saved else "",
        "output": state.task_result,
        "nodes": [
            {
                "name": n.name,
                "role": n.role,
                "phase": n.phase.value,
                "reason": n.reason.value,
                "message": n.message,
                "draining": n.goes,
                "joined": n.joined,
                "shards": state.ledger.leases.count(n.name),
                # Nothing is heard of it since then, in seconds since 1970.
                "unheard_since": master.supervisor.unresponsive.since.get(n.name),
            }
            for n in state.roster.nodes.values()
        ],
        "targets": state.roster.targets,
        "batches_without_effect": master.figures.refused,
        "buckets": state.placing.described(),
        "servers": without_tables(master.figures.described()) if brief else master.figures.described(),
        **({} if brief else {"audit": Audit.of(state.ledger).to_json()}),
    }


def _main_dataset(state: JobState) -> str:
    """The one whose progress is the job's: of those that a program has announced, the one with most to do."""
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
