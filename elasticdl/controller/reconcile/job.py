"""Reconciles one TrainingJob: a view of it and the time in, actions out.

    no record, admitted            → StartJob with the planned size
    record, no master, admitted    → StartMaster: it recovers with its ledger
    master ended or lost           → DeletePod first; its end is an event that comes back here
    planned size ≠ desired size    → WriteDesired; the job's master scales, and drains the victims first
    other machines are planned     → WriteDesired with victims only; the master replaces them
    suspended                      → WriteDesired with a pause; the master saves a checkpoint; DeletePod for all pods
    preempted                      → the same, with less time for the checkpoint: something of higher priority waits
    its pods are gone              → the record stays, and a later master recovers from it
    finished                       → the final status, which stays; DeleteTrainingJob after the time to live

The status is written whenever something but the progress has changed; progress only if `progress_is_due`. Every change
that the planner has decided on becomes an Event and an entry of `status.decisions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elasticdl.controller.demands import PS, WORKER, server_range, servers_for, size_range, trainer_range
from elasticdl.controller.reconcile.actions import (
    Action,
    DeletePod,
    DeleteTrainingJob,
    EmitEvent,
    StartJob,
    StartMaster,
    WriteDesired,
    WriteStatus,
)
from elasticdl.controller.reconcile.admitted_size import is_admitted_again
from elasticdl.controller.reconcile.job_status import WAITS_FOR_ROOM, next_status
from elasticdl.controller.reconcile.job_view import ENDED_PHASES, JobView
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import RunState
from elasticdl.jobs.training_job.status import (
    ConditionType,
    DecisionRecord,
    TrainingJobStatus,
    format_time,
    parse_time,
)
from elasticdl.platforms.kubernetes.client import uid_of
from elasticdl.platforms.kubernetes.naming import node_of
from elasticdl.platforms.kubernetes.pods.status import leaving
from elasticdl.scheduling.decisions import Decision, Hold, Move

# How long a suspended job may take to save a checkpoint. Queues wait for its pods to go.
PAUSE_SECONDS = 60.0
# The same for a job that stops for one of higher priority, which should run within 15 s: pods need the rest to go.
PREEMPTION_PAUSE_SECONDS = 5.0


def reconcile(view: JobView, *, now: float, progress_is_due: bool = True) -> tuple[Action, ...]:
    """Returns what is to be done about a job now, in order. `now`: seconds since 1970."""
    job, before = view.managed.job, view.written_status
    if job.is_deleted:
        # Its dependents are deleted with it.
        return ()
    if before.phase.is_final:
        return _after_the_end(view, before, now)
    changes = () if _is_over(view) or view.failure else _changes(view, now)
    status = next_status(view, before, now=now, is_starting=any(isinstance(a, StartJob) for a in changes))
    events = _events(view, before, status, changes)
    decision = _change_of_plan(view, changes)
    if decision is not None:
        status = status.with_decision(
            DecisionRecord(
                time=format_time(now),
                kind=type(decision).__name__,
                sentence=decision.reason,
                before=view.workers_desired,
                after=view.planned_size,
            )
        )
    if any(isinstance(each, StartMaster) for each in changes):
        status = replace(status, restarts=status.restarts + 1)
    writes: tuple[Action, ...] = ()
    if replace(status, progress=before.progress, goodput=before.goodput) != before or (
        progress_is_due and status.progress != before.progress
    ):
        writes = (WriteStatus(job=job, status=status),)
    return (*changes, *writes, *events)


def _change_of_plan(view: JobView, changes: tuple[Action, ...]) -> Decision | None:
    """The decision that the changes carry out, if there is one."""
    decision = view.decision
    if decision is None or isinstance(decision, Hold):
        return None
    return decision if any(isinstance(each, StartJob | WriteDesired) for each in changes) else None


def _after_the_end(view: JobView, status: TrainingJobStatus, now: float) -> tuple[Action, ...]:
    ttl, ended = view.managed.job.spec.ttl_seconds_after_finished, parse_time(status.completion_time)
    if ttl is not None and ended is not None and now >= ended + ttl:
        return (DeleteTrainingJob(job=view.managed.job),)
    return ()


def _is_over(view: JobView) -> bool:
    return view.record is not None and view.record.status.state.is_final


def _changes(view: JobView, now: float) -> tuple[Action, ...]:
    """Returns the changes of the job itself."""
    job = view.managed.job
    if view.is_name_taken or view.managed.problems or view.spec is None:
        # A running job goes on as it was before an edit that cannot be run.
        return ()
    if view.managed.is_suspended:
        return _pause(view, "the job is suspended", now)
    if admitted := _admitted_size(view):
        return admitted
    decision = view.decision
    if decision is None:
        return ()
    if decision.size < 1:
        # A waiting job has no pods; one that is preempted has.
        is_preempted = not isinstance(decision, Hold) or view.record is not None
        return _pause(view, decision.reason, now) if is_preempted and view.pods else ()
    if view.record is None:
        spec = sized(view, view.spec, view.planned_size)
        return (StartJob(job=job, spec=spec, started_from=view.managed.document["spec"]),)
    # The size first: a master that is created finds it.
    return (*_resize(view, view.planned_size), *_master(view))


def sized(view: JobView, spec: JobSpec, workers: int) -> JobSpec:
    """The job with so many workers, and the parameter servers that go with them."""
    nodes = replace(spec.nodes, num_workers=workers)
    if spec.nodes.num_ps and spec.program != "command":
        nodes = replace(nodes, num_ps=_servers(view, spec, workers))
    return replace(spec, nodes=nodes)


def _servers(view: JobView, spec: JobSpec, workers: int) -> int:
    return servers_for(
        workers, trainers=trainer_range(view.managed), servers=server_range(view.managed, spec)
    )


def _admitted_size(view: JobView) -> tuple[Action, ...]:
    """The size with which a queue has admitted a job again is written before anything else: it is remembered so."""
    if view.record is None or not view.managed.job.queue_name or not is_admitted_again(view):
        return ()
    size, _ = size_range(view.managed)
    if size == view.workers_desired or view.desired.stop:
        return ()
    desired = view.desired.with_nodes({WORKER: size})
    return (WriteDesired(job=view.managed.job, record=view.record.document, desired=desired),)


def _pause(view: JobView, reason: str, now: float) -> tuple[Action, ...]:
    """Stops the pods, after the master has saved a checkpoint if the job has one to save."""
    record, desired = view.record, view.desired
    if record is not None and _may_save(view) and now < pause_ends_at(view, now):
        if not desired.pause:
            after = desired.with_pause(reason)
            return (WriteDesired(job=view.managed.job, record=record.document, desired=after),)
        if not record.status.is_ready_to_pause or not record.record.has_observed(desired.generation):
            return ()
    return _stop_pods(view, reason)


def pause_ends_at(view: JobView, now: float) -> float:
    """Returns until when the pods of a job that is suspended or preempted may wait for its checkpoint."""
    if view.managed.is_suspended:
        kind, is_begun, limit = ConditionType.SUSPENDED, True, PAUSE_SECONDS
    else:
        kind, is_begun, limit = ConditionType.ADMITTED, False, PREEMPTION_PAUSE_SECONDS
    condition = view.written_status.condition(kind)
    if condition is None or condition.is_true is not is_begun:
        return now + limit
    since = parse_time(condition.last_transition_time)
    return (now if since is None else since) + limit


def _may_save(view: JobView) -> bool:
    """Whether there is a master at work that has a model to save. Programs of users save by themselves."""
    record, master = view.record, view.master
    if record is None or master is None or view.spec is None or view.spec.program == "command":
        return False
    return (
        not leaving(master)
        and str(master["metadata"]["name"]) not in view.lost_pods
        and (master.get("status") or {}).get("phase") == "Running"
        and record.status.state is RunState.RUNNING
        and record.status.has_report
    )


def _stop_pods(view: JobView, reason: str) -> tuple[Action, ...]:
    """The master first: it would replace the others."""
    master = view.master
    name_of_master = master["metadata"]["name"] if master is not None else ""
    names = sorted(view.pods, key=lambda name: (name != name_of_master, name))
    return tuple(
        DeletePod(
            job=view.managed.job,
            name=name,
            uid=uid_of(view.pods[name]),
            reason=reason,
            is_forced=name in view.lost_pods,
        )
        for name in names
        if not leaving(view.pods[name]) or name in view.lost_pods
    )


def _master(view: JobView) -> tuple[Action, ...]:
    record, master = view.record, view.master
    assert record is not None
    job = view.managed.job
    if master is None:
        try:
            spec = record.record.spec()
        except UserError:
            # Written by a newer version, for instance. The status reports it as a trouble.
            return ()
        return (StartMaster(job=job, record=record.document, spec=spec),)
    name = str(master["metadata"]["name"])
    is_lost = name in view.lost_pods
    if is_lost:
        return (
            DeletePod(job=job, name=name, uid=uid_of(master), reason="its machine is lost", is_forced=True),
        )
    if (master.get("status") or {}).get("phase") in ENDED_PHASES and not leaving(master):
        return (DeletePod(job=job, name=name, uid=uid_of(master), reason="it has ended before the job"),)
    return ()


def _resize(view: JobView, size: int) -> tuple[Action, ...]:
    record, desired = view.record, view.desired
    assert record is not None
    assert view.spec is not None
    if desired.stop:
        # A user's stop is never replaced by a size.
        return ()
    nodes: dict[str, int] = {}
    low, high = size_range(view.managed)
    # The planner counts pods: of a job whose workers finish, or are being replaced, it holds fewer than desired.
    is_held = isinstance(view.decision, Hold) and low <= view.workers_desired <= high
    if size != view.workers_desired and not is_held:
        nodes[WORKER] = size
    low, high = server_range(view.managed, view.spec)
    if high > low:
        servers = _servers(view, view.spec, size)
        there = desired.nodes.get(PS) or record.status.desired_nodes.get(PS) or view.spec.nodes.num_ps
        if servers != there:
            nodes[PS] = servers
    victims = _victims(view)
    is_move = isinstance(view.decision, Move) and bool(victims) and _is_settled(view, size)
    if not nodes and not is_move and not desired.pause:
        return ()
    # The observed generation is done, with its victims; sizes are levels and stay.
    base = desired if not record.record.has_observed(desired.generation) else replace(desired, victims=())
    after = base.with_nodes(nodes, victims=victims)
    return (WriteDesired(job=view.managed.job, record=record.document, desired=after),)


def _is_settled(view: JobView, size: int) -> bool:
    """Whether the job has what it should have, so that instances may leave for other machines. A node that is being
    replaced comes first: such a plan is one for the time after.
    """
    record = view.record
    if record is None or view.master is None or not record.record.has_observed(view.desired.generation):
        return False
    targets = record.status.desired_nodes
    return targets.get(WORKER) == size and all(
        record.status.ready_nodes(role) >= count for role, count in targets.items()
    )


def _victims(view: JobView) -> tuple[str, ...]:
    """Names of nodes, for those are what masters know. Left out: those that drain already, or cannot be drained."""
    pods: Mapping[str, object] = view.pods
    found = (key.partition("/")[2] for key in getattr(view.decision, "victims", ()))
    names = (node_of(dict(view.pods[name])) for name in found if name in pods)
    done: set[str] = set()
    if view.record is not None:
        done.update(node.name for node in view.record.status.nodes if node.is_draining)
        done.update(view.record.status.desired_result.ignored_victims)
    return tuple(name for name in names if name.startswith(f"{WORKER}-") and name not in done)


def _events(
    view: JobView, before: TrainingJobStatus, after: TrainingJobStatus, changes: tuple[Action, ...]
) -> tuple[EmitEvent, ...]:
    job, decision = view.managed.job, _change_of_plan(view, changes)
    found = []
    if decision is not None:
        found.append(EmitEvent(job=job, reason=type(decision).__name__, message=decision.reason))
    if any(isinstance(each, StartMaster) for each in changes):
        found.append(
            EmitEvent(job=job, reason="MasterRestarted", message="The master was gone and is created again.")
        )
    for each in changes:
        if isinstance(each, DeletePod):
            words = f"Deleting pod {each.name}: {each.reason.rstrip('.')}."
            found.append(EmitEvent(job=job, reason="PodDeleted", message=words))
    for kind, is_bad in (
        (ConditionType.VALID, False),
        (ConditionType.ADMITTED, False),
        (ConditionType.STALLED, True),
    ):
        old, new = before.condition(kind), after.condition(kind)
        if new is None or new.is_true is not is_bad:
            continue
        # Words of a pod's trouble alternate (ErrImagePull, ImagePullBackOff); its reason does not.
        is_edited = kind is ConditionType.VALID and old is not None and old.message != new.message
        if old is None or is_edited or (old.status, old.reason) != (new.status, new.reason):
            found.append(EmitEvent(job=job, reason=new.reason, message=new.message, is_warning=True))
    old, new = before.condition(ConditionType.RESIZING), after.condition(ConditionType.RESIZING)
    if new is not None and new.reason == WAITS_FOR_ROOM and (old is None or old.reason != new.reason):
        found.append(EmitEvent(job=job, reason=new.reason, message=new.message))
    if after.phase.is_final:
        message = after.message or f"The job has {after.phase.value.lower()}."
        found.append(
            EmitEvent(
                job=job,
                reason=after.phase.value,
                message=message,
                is_warning=after.phase.value == "Failed",
            )
        )
    return tuple(found)
