"""The controller's decisions: changes of objects in, actions out, one step at a time. No client, no clock of its own.

A step plans for all jobs together, then reconciles each of them. It may come at any time and any number of times:
nothing depends on having seen every state in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from elasticdl.backoff import Backoff
from elasticdl.controller.cluster_resources import ClusterResources
from elasticdl.controller.cluster_view import ClusterView, ManagedJob
from elasticdl.controller.demands import SpeedHistory, demand_of, priority_class
from elasticdl.controller.reconcile.actions import Action, EmitEvent, WriteStatus
from elasticdl.controller.reconcile.job import reconcile
from elasticdl.controller.reconcile.job_view import JobView, written_status
from elasticdl.controller.started_spec import read_started_spec, started_text
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.edits import followed, unapplied_edits
from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import FieldProblem
from elasticdl.jobs.training_job.resource import TrainingJobSpec
from elasticdl.jobs.training_job.status import TrainingJobPhase
from elasticdl.platforms.kubernetes.client import Document
from elasticdl.scheduling.cluster import ClusterState
from elasticdl.scheduling.decisions import Decision
from elasticdl.scheduling.demand import JobDemand
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.planner import Planner

log = logging.getLogger("elasticdl.controller")

# After a refused action: a right or an account that is missing is not there a second later.
_RETRY = Backoff(initial_seconds=2.0, max_seconds=60.0)
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
        self.view = ClusterView(on_job_change=lambda key: None)
        self._planner = planner or Planner()
        self._progress_seconds = progress_seconds
        self._specs: dict[str, _BuiltSpec] = {}
        self._histories: dict[str, SpeedHistory] = {}
        self._status_at: dict[str, float] = {}
        self._failures: dict[str, _Failure] = {}

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

    def resources(self) -> ClusterResources:
        return ClusterResources.of(self.view)

    def phases(self) -> list[TrainingJobPhase]:
        """Returns the phase of each job, as its status says."""
        return [written_status(managed).phase for managed in self.view.jobs.values()]

    def longest_waiting_seconds(self, now: float) -> float:
        """Returns the age of the oldest job that waits for its first start; 0 if none does."""
        waiting = (
            now - managed.job.created_seconds
            for managed in self.view.jobs.values()
            if managed.job.key not in self.view.records
            and written_status(managed).phase is TrainingJobPhase.PENDING
        )
        return max(waiting, default=0.0)

    def failed(self, job_id: str, action: Action, error: UserError, *, now: float) -> None:
        """An action was refused. Its job is left alone for a while, and its status says why."""
        if isinstance(action, WriteStatus | EmitEvent):
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

    def step(self, now: float, *, busy: Collection[str] = ()) -> Step:
        """`busy`: ids of jobs whose earlier actions are being carried out; they are planned for, and left alone."""
        self._forget()
        views = {job_id: self._view_of(managed) for job_id, managed in sorted(self.view.jobs.items())}
        demands: dict[str, JobDemand] = {}
        for view in views.values():
            try:
                demand = self._demand(view, now)
            except (UserError, SchedulingInputError) as error:
                log.warning("Leaving out job %s: %s", view.managed.job.key, error)
                continue
            if demand is not None:
                demands[demand.key] = demand
        decisions = self._plan(demands, now)
        actions: dict[str, tuple[Action, ...]] = {}
        for job_id, view in views.items():
            if job_id in busy:
                continue
            found = self._reconcile(job_id, view, decisions.get(view.managed.job.key), now)
            if any(isinstance(each, WriteStatus) for each in found):
                self._status_at[job_id] = now
            if found:
                actions[job_id] = found
        return Step(actions=actions, decisions=decisions)

    def _reconcile(
        self, job_id: str, view: JobView, decision: Decision | None, now: float
    ) -> tuple[Action, ...]:
        failure = self._failures.get(job_id)
        is_backing_off = failure is not None and now < failure.retry_at
        view = replace(
            view,
            decision=None if view.is_name_taken else decision,
            failure=failure.message if failure is not None and is_backing_off else "",
        )
        is_due = now - self._status_at.get(job_id, float("-inf")) >= self._progress_seconds
        try:
            return reconcile(view, now=now, progress_is_due=is_due)
        except Exception:
            # A job that breaks the controller must not stop the others.
            log.exception("Cannot reconcile %s", job_id)
            return ()

    def _plan(self, demands: dict[str, JobDemand], now: float) -> dict[str, Decision]:
        state = ClusterState(
            now_seconds=now,
            machines=tuple(self.view.machines.values()),
            pods=tuple(self.view.pods.values()),
            jobs=tuple(demands.values()),
        )
        return {decision.job: decision for decision in self._planner.plan(state).decisions}

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
        return JobView(
            managed=built.of(managed),
            spec=built.spec,
            problem=built.problem,
            edits=built.edits,
            record=record,
            pods=pods,
            lost_pods=frozenset(lost),
        )

    def _built(self, managed: ManagedJob, *, started_from: str) -> _BuiltSpec:
        job = managed.job
        key = (job.uid, job.generation, managed.problems, started_from)
        built = self._specs.get(managed.id)
        if built is None or built.key != key:
            built = self._specs[managed.id] = _build(managed, started_from, key)
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
        )

    def _forget(self) -> None:
        """Drops what is kept of jobs that are gone."""
        jobs = self.view.jobs
        self._specs = {job_id: each for job_id, each in self._specs.items() if job_id in jobs}
        self._histories = {job_id: each for job_id, each in self._histories.items() if job_id in jobs}
        self._status_at = {job_id: each for job_id, each in self._status_at.items() if job_id in jobs}
        self._failures = {job_id: each for job_id, each in self._failures.items() if job_id in jobs}


def _build(managed: ManagedJob, started_from: str, key: tuple[object, ...]) -> _BuiltSpec:
    job, problems = managed.job, managed.problems
    running: TrainingJobSpec | None = None
    edits: tuple[FieldProblem, ...] = ()
    started = read_started_spec(
        started_from, name=job.name, namespace=job.namespace, api_version=job.api_version
    )
    if started is not None:
        # A running job goes on as it was before an edit that it cannot follow.
        edits = problems or unapplied_edits(started, job.spec)
        running = started if problems else followed(started, job.spec)
        job, problems = replace(job, spec=running), ()
    spec, problem = None, " ".join(str(each) for each in problems)
    if not problems:
        try:
            spec = job_spec_of(job)
        except UserError as error:
            problem = error.message
    return _BuiltSpec(key=key, spec=spec, problem=problem, running=running, edits=edits)
