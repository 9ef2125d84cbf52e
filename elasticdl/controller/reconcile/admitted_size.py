"""The size with which a queue has admitted a job: the only one that is written until the queue admits it again.

Kueue counts what a job requests when it sets `suspend` to false. A later edit of the size would take what others of the
queue have been promised, so it waits until the job has been suspended and admitted again. Remembered is the size in the
job record, which outlasts pods, masters and controllers.
"""

from __future__ import annotations

from dataclasses import replace

from elasticdl.controller.demands import PS, trainer_range
from elasticdl.controller.reconcile.job_view import JobView
from elasticdl.jobs.training_job.parsing import FieldProblem
from elasticdl.jobs.training_job.status import ConditionType


def with_admitted_size(view: JobView) -> JobView:
    """Returns the view with the sizes that were admitted, and with the edits of them that have to wait."""
    managed, record = view.managed, view.record
    if not managed.job.queue_name or managed.is_suspended or record is None or is_admitted_again(view):
        return view
    admitted = view.workers_desired
    if admitted < 1:
        return view
    wanted, _ = trainer_range(managed)
    edits = view.edits
    if wanted != admitted:
        sentence = (
            f"queue {managed.job.queue_name} has admitted {admitted} trainers, not {wanted}. The job keeps its size "
            "until it is suspended and admitted again."
        )
        edits = (*edits, FieldProblem(path="spec.trainer", sentence=sentence))
    spec = managed.job.spec
    trainer = replace(spec.trainer, min_instance=admitted, max_instance=admitted, replicas=0)
    pserver = spec.pserver
    if servers := view.desired.nodes.get(PS) or record.status.desired_nodes.get(PS, 0):
        pserver = replace(pserver, min_instance=servers, max_instance=servers)
    job = replace(managed.job, spec=replace(spec, trainer=trainer, pserver=pserver))
    return replace(view, managed=replace(managed, job=job), edits=edits)


def is_admitted_again(view: JobView) -> bool:
    """Whether the job was suspended until now: the size of its spec is the one that has been admitted."""
    suspended = view.written_status.condition(ConditionType.SUSPENDED)
    return suspended is not None and suspended.is_true and not view.managed.is_suspended
