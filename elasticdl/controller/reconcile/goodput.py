"""Goodput of a job, and where the rest of its life went: accounted whenever its status is written. Pure.

What has been accounted for so far is the sum of all parts; the time since then belongs to the state that the status
had until now, because every change of state is written. So nothing else needs to be remembered, and a controller that
takes over continues the account.

    Pending, or Suspended by a queue   waiting for capacity
    Suspended by its user              suspended: not lost, and not part of the ratio
    Starting, Stopping, no minimum     starting
    Running with 3 of 4 trainers       three quarters training, one quarter resizing

Of the time that trained, the master's report says what is lost again:

    stragglers    workers that waited for slower ones, as the master has counted it
    retraining    (time that trained) · again / (done + again), in samples: what was trained again, at the mean time of
                  a sample
"""

from __future__ import annotations

from dataclasses import replace

from elasticdl.jobs.status import JobStatus
from elasticdl.jobs.training_job.status import (
    ConditionType,
    GoodputStatus,
    LostSeconds,
    TrainingJobPhase,
    TrainingJobStatus,
)

_WAITING = (TrainingJobPhase.PENDING, TrainingJobPhase.INVALID)


def accounted(
    before: TrainingJobStatus, reported: JobStatus, *, created_seconds: float, now: float
) -> GoodputStatus:
    """Returns the account up to now. `before`: the status that has held since the last account."""
    goodput = before.goodput
    lost = goodput.lost_seconds
    so_far = goodput.training_seconds + goodput.suspended_seconds + lost.total
    # A clock that jumps back adds nothing, and takes nothing away.
    seconds = max(now - created_seconds - so_far, 0.0)
    # All time with trainers at work, whatever became of it.
    worked = goodput.training_seconds + lost.retraining + lost.stragglers
    suspended = goodput.suspended_seconds
    ready = before.condition(ConditionType.READY)
    if before.phase is TrainingJobPhase.SUSPENDED and not _is_queued(before):
        suspended += seconds
    elif before.phase in (*_WAITING, TrainingJobPhase.SUSPENDED):
        lost = replace(lost, waiting_for_capacity=lost.waiting_for_capacity + seconds)
    elif before.phase is TrainingJobPhase.RUNNING and ready is not None and ready.is_true:
        share = min(before.trainer.ready / max(before.trainer.desired, 1), 1.0)
        worked += seconds * share
        lost = replace(lost, resizing=lost.resizing + seconds * (1.0 - share))
    else:
        lost = replace(lost, starting=lost.starting + seconds)
    lost = _divided(lost, reported, worked)
    training = worked - lost.retraining - lost.stragglers
    whole = training + lost.total
    return GoodputStatus(
        ratio=training / whole if training else None,
        training_seconds=training,
        suspended_seconds=suspended,
        lost_seconds=lost,
    )


def _divided(lost: LostSeconds, reported: JobStatus, worked: float) -> LostSeconds:
    """Divides the lost part of the time at work. No part falls or exceeds the total: reports may be missing, or come
    from a master that has lost its count.
    """
    stragglers = min(max(lost.stragglers, reported.straggler_seconds), worked)
    trained = reported.samples_done + reported.samples_again
    part = reported.samples_again / trained if trained else 0.0
    retraining = max(lost.retraining, (worked - stragglers) * part)
    return replace(lost, stragglers=stragglers, retraining=min(retraining, worked - stragglers))


def rounded(goodput: GoodputStatus) -> GoodputStatus:
    """Rounds the goodput to the millisecond, so that parts still add up."""
    lost = goodput.lost_seconds
    return replace(
        goodput,
        ratio=None if goodput.ratio is None else round(goodput.ratio, 4),
        training_seconds=round(goodput.training_seconds, 3),
        suspended_seconds=round(goodput.suspended_seconds, 3),
        lost_seconds=replace(
            lost,
            waiting_for_capacity=round(lost.waiting_for_capacity, 3),
            starting=round(lost.starting, 3),
            retraining=round(lost.retraining, 3),
            stragglers=round(lost.stragglers, 3),
            resizing=round(lost.resizing, 3),
        ),
    )


def _is_queued(status: TrainingJobStatus) -> bool:
    suspended = status.condition(ConditionType.SUSPENDED)
    return suspended is not None and suspended.reason == "WaitsForQueue"
