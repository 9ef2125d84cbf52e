"""The controller's decisions: changes of objects in, actions out, one step at a time. No client, no clock of its own.

A step plans for all jobs together, then reconciles each of them. It may come at any time and any number of times:
nothing depends on having seen every state in between.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from elasticdl.backoff import Backoff
from elasticdl.controller.cluster_resources import ClusterResources
from elasticdl.controller.cluster_view import ClusterView, ManagedJob
from elasticdl.controller.demands import SpeedHistory, demand_of, priority_class
from elasticdl.controller.planned import Planned
from elasticdl.controller.reconcile.actions import Action, EmitEvent, WriteStatus
from elasticdl.controller.reconcile.admitted_size import with_admitted_size
from elasticdl.controller.reconcile.job import pause_ends_at, reconcile
from elasticdl.controller.reconcile.job_view import JobView, written_phase
from elasticdl.controller.reconcile.started_spec import read_started_spec, started_text
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.edits import followed, unapplied_edits
from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import FieldProblem
from elasticdl.jobs.training_job.resource import TrainingJobSpec
from elasticdl.jobs.training_job.status import TrainingJobPhase, parse_time
from elasticdl.platforms.kubernetes.client import ClusterAway, Document
from elasticdl.scheduling.cluster import ClusterState
from elasticdl.scheduling.decisions import Decision
from elasticdl.scheduling.demand import JobDemand
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.planner import Planner

log = logging.getLogger("elasticdl.controller")

# After a refused action: a right or an account that is missing is not there a second later.
_RETRY = Backoff(initial_seconds=2.0, max_seconds=60.0)
# How often a job is looked at of which nothing changes.
_RESYNC_SECONDS = 60.0
# A thousand jobs write their progress every minute.
_PROGRESS_SECONDS_PER_JOB = 0.06
# Jobs of which nothing has changed, in one step; of many jobs, a twentieth.
_MOST_TIMED = 50
# How often the progress alone is written into the status of a job.
PROGRESS_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class _BuiltSpec:
    """The JobSpec of one generation of a TrainingJob, or why there is none. `running`: of a job that has started, what
    it was started with and those edits that it follows; `edits` are the others.
    """

    key: tuple[object, ...]
    spec: JobSpec | None
    problem: str
    running: TrainingJobSpec | None = None
    edits: tuple[FieldProblem, ...] = ()

    def of(self, managed: ManagedJob) -> ManagedJob:
        if self.running is None:
            return managed
        return replace(managed, job=replace(managed.job, spec=self.running), problems=())


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """An action of a job that was refused; nothing of the job is attempted again before `retry_at`."""

    message: str
    retry_at: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """`actions`: by the id of the TrainingJob; those of a job are to be carried out in order."""

    actions: dict[str, tuple[Action, ...]] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)


class Engine:
    """`progress_seconds`: how often the progress alone is written into the status of a job."""

    def __init__(self, *, progress_seconds: float = PROGRESS_SECONDS, planner: Planner | None = None) -> None:
        # Keys of jobs of which something has changed since the last step.
        self._changed: set[str] = set()
        self.view = ClusterView(on_job_change=self._changed_job)
        self._planner = planner or Planner()
        self._progress_seconds = progress_seconds
        self._specs: dict[str, _BuiltSpec] = {}
        self._histories: dict[str, SpeedHistory] = {}
        self._status_at: dict[str, float] = {}
        self._failures: dict[str, _Failure] = {}
        # The last view of each job, with the decision that it was reconciled with, and when to look at it again.
        self._views: dict[str, JobView] = {}
        self._due_at: dict[str, float] = {}
        self._next_at: dict[str, float] = {}
        # The demand of each job on the planner, by its key, and the TrainingJob that it is of.
        self._demands: dict[str, JobDemand] = {}
        self._askers: dict[str, str] = {}
        self._planned: Planned | None = None
        # The decisions of the last plan.
        self._decisions: dict[str, Decision] = {}
        self._stepped_at = float("-inf")

    def apply(self, kind: str, document: Document, *, gone: bool = False) -> None:
        """Takes a change of an object into the view."""
        appliers: dict[str, Callable[..., None]] = {
            "Node": self.view.apply_node,
            "Pod": self.view.apply_pod,
            "TrainingJob": self.view.apply_training_job,
            "ConfigMap": self.view.apply_record,
            "PriorityClass": self.view.apply_priority_class,
        }
        appliers[kind](document, gone=gone)

    @property
    def has_changes(self) -> bool:
        """Whether there is something that the last step has not seen; a heartbeat and progress are nothing."""
        return bool(self._changed or self.view.changes)

    def resources(self) -> ClusterResources:
        return ClusterResources.of(self.view)

    def phases(self) -> list[TrainingJobPhase]:
        """Returns the phase of each job, as its status says."""
        return [written_phase(managed) for managed in self.view.jobs.values()]

    def longest_waiting_seconds(self, now: float) -> float:
        """Returns the age of the oldest job that waits for its first start; 0 if none does."""
        waiting = (
            now - managed.job.created_seconds
            for managed in self.view.jobs.values()
            if managed.job.key not in self.view.records and written_phase(managed) is TrainingJobPhase.PENDING
        )
        return max(waiting, default=0.0)

    def failed(self, job_id: str, action: Action, error: UserError, *, now: float) -> None:
        """An action was refused. Its job is left alone for a while, and its status says why.

        Requests without an answer have been retried for long enough already, and are no trouble of one job.
        """
        if isinstance(action, WriteStatus | EmitEvent) or isinstance(error, ClusterAway):
            return
        before = self._failures.get(job_id)
        count = before.count + 1 if before is not None else 1
        self._failures[job_id] = _Failure(
            message=f"{type(action).__name__}: {error}".replace("\n", " "),
            retry_at=now + _RETRY.delay(count),
            count=count,
        )

    def carried_out(self, job_id: str, actions: Collection[Action]) -> None:
        """All actions of a job were carried out."""
        if not all(isinstance(each, WriteStatus | EmitEvent) for each in actions):
            self._failures.pop(job_id, None)
        elif job_id in self._next_at:
            # The status is as it should be; what else changes will be reported.
            self._due_at[job_id] = self._next_at[job_id]

    def step(self, now: float, *, busy: Collection[str] = ()) -> Step:
        """`busy`: ids of jobs whose earlier actions are being carried out; they are planned for, and left alone.

        Only jobs of which something has changed, or whose time has come, are looked at.
        """
        self._forget()
        self._follow_clock(now)
        due = self._take_due(now)
        for job_id in due:
            view = self._views[job_id] = self._view_of(self.view.jobs[job_id])
            self._update_demand(job_id, view, now)
        decisions = self._plan(now)
        actions: dict[str, tuple[Action, ...]] = {}
        for job_id, view in self._views.items():
            decision = None if view.is_name_taken else decisions.get(view.managed.job.key)
            if job_id not in due and _is_same(decision, view.decision):
                continue
            # The status may have been written since; then the object has another version.
            view = view if job_id in due else self._view_of(self.view.jobs[job_id])
            view = self._views[job_id] = replace(view, decision=decision)
            if job_id in busy:
                self._due_at[job_id] = now
                continue
            if found := self._reconcile(job_id, view, now):
                actions[job_id] = found
        return Step(actions=actions, decisions=decisions)

    def seconds_to_due(self, now: float) -> float:
        """Returns how soon a job is to be looked at of which nothing changes; infinite if there are no jobs."""
        return max(min(self._due_at.values(), default=math.inf) - now, 0.0)

    def seconds_to_pause_end(self, now: float) -> float:
        """Returns how soon a step is due because a job has had its time to save a checkpoint; infinite if none is."""
        ends = (pause_ends_at(view, now) for view in self._views.values() if view.desired.pause)
        return min((end - now for end in ends if end > now), default=math.inf)

    def _follow_clock(self, now: float) -> None:
        """Moves what is to come with a clock that has jumped back: else nothing would be due until it has caught up."""
        back, self._stepped_at = self._stepped_at - now, now
        if back <= 0:
            return
        log.info("Following the clock, which has jumped back by %.1f s", back)
        for times in (self._due_at, self._next_at, self._status_at):
            for job_id in times:
                times[job_id] -= back
        for history in self._histories.values():
            history.shift(-back)
        self._failures = {
            job_id: replace(failure, retry_at=failure.retry_at - back)
            for job_id, failure in self._failures.items()
        }

    def _take_due(self, now: float) -> set[str]:
        changed, self._changed = self._changed, set()
        due = {managed.id for key in changed for managed in self.view.jobs_of(key)}
        timed = [job_id for job_id in self.view.jobs if self._due_at.get(job_id, now) <= now]
        timed.sort(key=lambda job_id: self._due_at.get(job_id, now))
        # Else those that have started together would delay a decision for seconds, again and again.
        return due | set(timed[: max(_MOST_TIMED, len(self.view.jobs) // 20)])

    def _update_demand(self, job_id: str, view: JobView, now: float) -> None:
        key, demand = view.managed.job.key, None
        try:
            demand = self._demand(view, now)
        except (UserError, SchedulingInputError) as error:
            log.warning("Skipping job %s: %s", key, error)
        if demand is not None:
            self._demands[key] = demand
            self._askers[key] = job_id
        elif self._askers.get(key) in (job_id, None):
            self._demands.pop(key, None)

    def _reconcile(self, job_id: str, view: JobView, now: float) -> tuple[Action, ...]:
        failure = self._failures.get(job_id)
        if failure is not None and now < failure.retry_at:
            view = replace(view, failure=failure.message)
        interval = self._progress_interval()
        written_at = self._status_at.get(job_id, float("-inf"))
        try:
            found = reconcile(view, now=now, progress_is_due=now - written_at >= interval)
        except Exception:
            # A job that breaks the controller must not stop the others.
            log.exception("Cannot reconcile %s", job_id)
            found = ()
        if any(isinstance(each, WriteStatus) for each in found):
            self._status_at[job_id] = now
        next_at = self._next_time(view, now, self._status_at.get(job_id, now))
        if view.failure and failure is not None:
            next_at = min(next_at, failure.retry_at)
        self._next_at[job_id] = next_at
        # Actions that failed are repeated.
        self._due_at[job_id] = now if found else next_at
        return found

    def _next_time(self, view: JobView, now: float, written_at: float) -> float:
        """When to look at a job again of which nothing changes."""
        phase = view.written_status.phase
        if not phase.is_final and view.record is not None:
            interval = self._progress_interval()
            regular = now + interval if written_at + interval <= now else written_at + interval
            ends_at = pause_ends_at(view, now) if view.desired.pause else now
            return min(regular, ends_at) if ends_at > now else regular
        ttl = view.managed.job.spec.ttl_seconds_after_finished
        ended = parse_time(view.written_status.completion_time)
        if phase.is_final and ttl is not None and ended is not None:
            return min(max(ended + ttl, now), now + _RESYNC_SECONDS)
        return now + _RESYNC_SECONDS

    def _progress_interval(self) -> float:
        """The more jobs there are, the less often each of them writes its progress."""
        return max(self._progress_seconds, _PROGRESS_SECONDS_PER_JOB * len(self.view.jobs))

    def _plan(self, now: float) -> dict[str, Decision]:
        """Updates the last plan, if there was one, by the changes since."""
        changes = self.view.take_changes()
        plan = None
        if self._planned is not None:
            try:
                plan = self._planner.replan(self._planned.changes(changes, self.view, self._demands, now))
            except Exception:
                log.exception("Cannot plan from the last plan; planning from scratch")
        if plan is None:
            try:
                plan = self._planner.plan(
                    ClusterState(
                        now_seconds=now,
                        machines=tuple(self.view.machines.values()),
                        pods=tuple(self.view.pods.values()),
                        jobs=tuple(self._demands.values()),
                    )
                )
            except Exception:
                # Jobs still end, are suspended, and get new masters.
                log.exception("Cannot plan: all jobs keep the sizes of the last plan")
                self._planned = None
                return self._decisions
        self._planned = Planned.of(self.view, self._demands)
        self._decisions = {decision.job: decision for decision in plan.decisions}
        return self._decisions

    def _view_of(self, managed: ManagedJob) -> JobView:
        key = managed.job.key
        owner = self.view.owner_of(key)
        if owner is None or owner.id != managed.id:
            built = self._built(managed, started_from="")
            return JobView(managed=managed, spec=built.spec, problem=built.problem, is_name_taken=True)
        record = self.view.records.get(key)
        built = self._built(managed, started_from=started_text(record.document) if record is not None else "")
        pods = self.view.pods_of(key)
        lost = (
            name
            for name, pod in pods.items()
            if self.view.is_lost_machine((pod.get("spec") or {}).get("nodeName"))
        )
        view = JobView(
            managed=built.of(managed),
            spec=built.spec,
            problem=built.problem,
            edits=built.edits,
            record=record,
            pods=pods,
            lost_pods=frozenset(lost),
        )
        if view.master is not None and (words := self.view.pod_trouble(view.master)):
            view = replace(view, master_trouble=words)
        return with_admitted_size(view)

    def _built(self, managed: ManagedJob, *, started_from: str) -> _BuiltSpec:
        job = managed.job
        key = (job.uid, job.generation, managed.problems, started_from)
        built = self._specs.get(managed.id)
        if built is None or built.key != key:
            built = self._specs[managed.id] = _build(managed, started_from, key, before=built)
        return built

    def _demand(self, view: JobView, now: float) -> JobDemand | None:
        """Returns None for a job that the planner is not asked about: it is over, suspended, or cannot be run."""
        managed, record = view.managed, view.record
        if view.spec is None or view.is_name_taken or managed.is_suspended or managed.job.is_deleted:
            return None
        if view.written_status.phase.is_final or (record is not None and record.status.state.is_final):
            return None
        history = self._histories.setdefault(managed.id, SpeedHistory())
        if record is not None:
            machines = {
                (pod.get("spec") or {}).get("nodeName")
                for name, pod in view.pods.items()
                if pod is not view.master
            }
            history.observe(
                machines=len(machines - {None}),
                workers=record.status.ready_nodes("worker"),
                samples_per_second=record.status.samples_per_second,
                now=now,
            )
        return demand_of(
            managed,
            view.spec,
            record,
            priority=self.view.priority(priority_class(view.spec)),
            history=history,
            workers_desired=view.workers_desired,
            workers_now=view.workers_placed,
        )

    def _changed_job(self, key: str) -> None:
        self._changed.add(key)

    def _forget(self) -> None:
        """Drops what is kept of jobs that are gone."""
        jobs = self.view.jobs
        if all(job_id in jobs for job_id in self._views):
            return
        for kept in (
            self._specs,
            self._histories,
            self._status_at,
            self._failures,
            self._views,
            self._due_at,
            self._next_at,
        ):
            for job_id in [each for each in kept if each not in jobs]:
                del kept[job_id]
        for key in [key for key, job_id in self._askers.items() if job_id not in jobs]:
            del self._askers[key]
            self._demands.pop(key, None)


def _is_same(one: Decision | None, other: Decision | None) -> bool:
    """Whether two decisions have the same effects."""
    if one is None or other is None:
        return one is other
    return (type(one), one.size, one.reason) == (type(other), other.size, other.reason) and getattr(
        one, "victims", ()
    ) == getattr(other, "victims", ())


def _last_valid(
    managed: ManagedJob, started: TrainingJobSpec, key: tuple[object, ...], before: _BuiltSpec | None
) -> TrainingJobSpec:
    """Returns the spec with which a job continues if its present spec cannot be read: the last valid one with the edits
    that this controller has seen. A suspended job stays suspended.
    """
    is_of_job = before is not None and (before.key[0], before.key[-1]) == (key[0], key[-1])
    running = before.running if before is not None and is_of_job and before.running is not None else started
    return replace(running, suspend=(managed.document.get("spec") or {}).get("suspend") is True)


def _build(
    managed: ManagedJob, started_from: str, key: tuple[object, ...], *, before: _BuiltSpec | None
) -> _BuiltSpec:
    """`before`: of an earlier generation, or of an earlier job of that name."""
    job, problems = managed.job, managed.problems
    running: TrainingJobSpec | None = None
    edits: tuple[FieldProblem, ...] = ()
    started = read_started_spec(
        started_from, name=job.name, namespace=job.namespace, api_version=job.api_version
    )
    if started is not None:
        # A running job goes on as it was before an edit that it cannot follow.
        edits = problems or unapplied_edits(started, job.spec)
        running = followed(started, job.spec) if not problems else _last_valid(managed, started, key, before)
        job, problems = replace(job, spec=running), ()
    spec, problem = None, " ".join(str(each) for each in problems)
    if not problems:
        try:
            spec = job_spec_of(job)
        except UserError as error:
            problem = error.message
    return _BuiltSpec(key=key, spec=spec, problem=problem, running=running, edits=edits)
