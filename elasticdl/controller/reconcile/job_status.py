"""The status of a TrainingJob, concluded from a view of it and the status before. Pure."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.controller.demands import PS, WORKER
from elasticdl.controller.reconcile.goodput import accounted, rounded
from elasticdl.controller.reconcile.job_view import JobView
from elasticdl.jobs.status import JobStatus, RunState
from elasticdl.jobs.training_job.status import (
    ConditionType,
    ProgressStatus,
    RoleStatus,
    TrainingJobPhase,
    TrainingJobStatus,
    format_time,
)
from elasticdl.platforms.kubernetes.naming import APP, JOB_LABEL, ROLE_LABEL
from elasticdl.scheduling.decisions import Hold, Reject

_PHASES = {
    RunState.STARTING: TrainingJobPhase.STARTING,
    RunState.RUNNING: TrainingJobPhase.RUNNING,
    RunState.STOPPING: TrainingJobPhase.STOPPING,
    RunState.SUCCEEDED: TrainingJobPhase.SUCCEEDED,
    RunState.FAILED: TrainingJobPhase.FAILED,
    RunState.STOPPED: TrainingJobPhase.STOPPED,
}
# The reason of the Resizing condition of a job whose pinned size does not fit.
WAITS_FOR_ROOM = "WaitsForRoom"
# Reasons of the Stalled condition by the words of a pod's trouble.
_STALLS = (
    ("ErrImage", "ImageMissing"),
    ("ImagePullBackOff", "ImageMissing"),
    ("InvalidImageName", "ImageMissing"),
    ("CrashLoopBackOff", "CrashLoop"),
    ("it has ended", "CrashLoop"),
    ("FailedMount", "VolumeNotMounted"),
    ("FailedAttachVolume", "VolumeNotMounted"),
    ("Unschedulable", "Unschedulable"),
)


def next_status(
    view: JobView, before: TrainingJobStatus, *, now: float, is_starting: bool = False
) -> TrainingJobStatus:
    """Returns the status of a job that was not over before. `is_starting`: its record is about to be created."""
    job, record = view.managed.job, view.record
    reported = record.status if record is not None else JobStatus()
    phase = _phase(view, before, is_starting)
    status = replace(
        before,
        phase=phase,
        observed_generation=job.generation,
        selector=f"app={APP},{JOB_LABEL}={job.name},{ROLE_LABEL}={WORKER}",
        trainer=_trainers(view, before, reported),
        pserver=_servers(view, before, reported),
        goodput=rounded(accounted(before, reported, created_seconds=job.created_seconds, now=now)),
    )
    if record is not None and reported.has_report:
        status = replace(
            status,
            start_time=status.start_time or format_time(reported.start_time or now),
            progress=ProgressStatus(
                epoch=reported.epoch,
                epochs=reported.epochs,
                samples_done=reported.samples_done,
                samples_total=reported.samples_desired,
                samples_per_second=round(reported.samples_per_second, 1),
                remaining_seconds=reported.remaining_seconds,
            ),
        )
    status = _conditions(view, status, reported, now)
    if phase.is_final:
        status = replace(status, completion_time=format_time(now), audit=reported.audit)
    return replace(status, message=_message(status, reported))


def _phase(view: JobView, before: TrainingJobStatus, is_starting: bool) -> TrainingJobPhase:
    record = view.record
    if record is not None and record.status.state.is_final:
        return _PHASES[record.status.state]
    if view.managed.is_suspended and not view.managed.problems:
        return TrainingJobPhase.SUSPENDED
    if view.managed.problems or view.spec is None:
        return TrainingJobPhase.INVALID if record is None else before.phase
    if view.is_name_taken:
        return TrainingJobPhase.PENDING
    if is_starting:
        return TrainingJobPhase.STARTING
    if record is None or (view.decision is not None and view.decision.size < 1):
        return TrainingJobPhase.PENDING
    if view.master is None:
        return TrainingJobPhase.STARTING
    return _PHASES.get(record.status.state, TrainingJobPhase.STARTING)


def _trainers(view: JobView, before: TrainingJobStatus, reported: JobStatus) -> RoleStatus:
    if view.managed.problems:
        return replace(before.trainer, ready=reported.ready_nodes(WORKER))
    trainer = view.managed.job.spec.trainer
    return RoleStatus(
        ready=0 if view.record is None else reported.ready_nodes(WORKER),
        desired=view.planned_size or (0 if view.record is None else view.workers_desired),
        min=trainer.min_instance,
        max=trainer.max_instance,
    )


def _servers(view: JobView, before: TrainingJobStatus, reported: JobStatus) -> RoleStatus:
    if view.managed.problems:
        return replace(before.pserver, ready=reported.ready_nodes(PS))
    pserver = view.managed.job.spec.pserver
    desired = view.desired.nodes.get(PS) or reported.desired_nodes.get(PS, 0)
    return RoleStatus(
        ready=reported.ready_nodes(PS),
        desired=desired or (pserver.min_instance if view.record is not None else 0),
        min=pserver.min_instance,
        max=pserver.max_instance,
    )


def _conditions(
    view: JobView, status: TrainingJobStatus, reported: JobStatus, now: float
) -> TrainingJobStatus:
    def put(kind: ConditionType, value: bool, reason: str, message: str = "") -> None:
        nonlocal status
        status = status.with_condition(
            kind,
            value,
            reason=reason,
            message=message,
            now_seconds=now,
            observed_generation=view.managed.job.generation,
        )

    problem = " ".join(str(each) for each in view.managed.problems) or view.problem
    if view.edits and not problem:
        put(ConditionType.VALID, False, "EditNotApplied", " ".join(str(each) for each in view.edits))
    else:
        put(ConditionType.VALID, not problem, "InvalidSpec" if problem else "Accepted", problem)
    is_final = status.phase.is_final
    if view.managed.is_suspended:
        by_queue = bool(view.managed.job.queue_name)
        put(ConditionType.SUSPENDED, True, "WaitsForQueue" if by_queue else "Suspended")
    elif status.condition(ConditionType.SUSPENDED) is not None:
        put(ConditionType.SUSPENDED, False, "Resumed")
    decision = view.decision
    if not is_final and view.is_name_taken:
        words = f"Job {view.managed.job.name} in this namespace does not belong to this TrainingJob."
        put(ConditionType.ADMITTED, False, "NameInUse", words)
    elif not is_final and decision is not None:
        waiting = "DoesNotFit" if isinstance(decision, Reject) else "WaitsForCapacity"
        is_admitted = decision.size > 0
        put(ConditionType.ADMITTED, is_admitted, "Planned" if is_admitted else waiting, decision.reason)
    ready, desired = status.trainer.ready, status.trainer.desired
    is_ready = reported.has_report and not is_final and ready >= max(status.trainer.min, 1)
    put(ConditionType.READY, is_ready, "MinimumReady" if is_ready else "MinimumNotReady")
    trouble = "" if is_final else view.trouble
    reason = "ActionRefused" if view.failure else _stall(trouble) if trouble else "NoTrouble"
    put(ConditionType.STALLED, bool(trouble), reason, trouble)
    is_resizing = not is_final and view.record is not None and ready != desired
    error = reported.desired_result.error if is_resizing else ""
    if not is_final and not error and _waits_for_pinned_size(view):
        put(ConditionType.RESIZING, True, WAITS_FOR_ROOM, view.decision.reason if view.decision else "")
    else:
        put(ConditionType.RESIZING, is_resizing, "SizeDiffers" if is_resizing else "SizeReached", error)
    if is_final:
        put(ConditionType.FINISHED, True, status.phase.value, reported.message)
    return status


def _waits_for_pinned_size(view: JobView) -> bool:
    """Whether a user has asked for a size that has no room."""
    pinned = view.managed.job.spec.trainer.pinned
    return pinned is not None and isinstance(view.decision, Hold) and 0 < view.planned_size < pinned


def _stall(trouble: str) -> str:
    return next((reason for words, reason in _STALLS if words in trouble), "PodNotRunning")


def _message(status: TrainingJobStatus, reported: JobStatus) -> str:
    if status.phase.is_final:
        return reported.message
    for kind, bad in (
        (ConditionType.VALID, False),
        (ConditionType.STALLED, True),
        (ConditionType.ADMITTED, False),
    ):
        condition = status.condition(kind)
        if condition is not None and condition.is_true is bad and condition.message:
            return condition.message
    return reported.phase
