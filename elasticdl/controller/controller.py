"""The controller as a process: leads or is on standby, watches, plans on changes, and carries out what the engine
decides.

A change that a plan reads wakes the loop; the plan comes a moment later, with the changes that arrive meanwhile. What
plans cost sets their distance: on a small cluster a tenth of a second, on a large one up to `plan_interval_seconds`.
Without a change a plan comes every `resync_seconds`. Jobs are worked on concurrently; the actions of one job never
overlap, and begin at least `job_interval_seconds` after its last ones: the cache has their results then.

Failure modes
    Before all kinds have been listed once, nothing is planned: a cluster without machines would preempt everything. A
    replica that does not lead watches as well, and takes over with a warm cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.controller.cached_documents import slim_node, slim_pod, slim_record, slim_training_job
from elasticdl.controller.cluster_view import is_master, job_id_of
from elasticdl.controller.effects import Effects
from elasticdl.controller.election import ElectionTiming, LeaderElector
from elasticdl.controller.engine import Engine, Step
from elasticdl.controller.informer import Informer, Watched
from elasticdl.controller.reconcile.actions import Action, StartJob, WriteDesired
from elasticdl.controller.stuck_masters import StuckMasters
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.api_resources import PADDLE_TRAINING_JOB, TRAINING_JOB, resource_of
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.manifests import JOB_ROLE
from elasticdl.platforms.kubernetes.naming import APP, ROLE_LABEL
from elasticdl.platforms.kubernetes.watch import Change

if TYPE_CHECKING:
    from elasticdl.controller.serving.metrics import ControllerMetrics

log = logging.getLogger("elasticdl.controller")

WATCHED = (
    Watched(resource="Node", transform=slim_node),
    Watched(resource="Pod", transform=slim_pod),
    Watched(resource="ConfigMap", labels={"app": APP, ROLE_LABEL: JOB_ROLE}, transform=slim_record),
    Watched(resource="PriorityClass"),
    Watched(resource=TRAINING_JOB, transform=slim_training_job, is_custom=True),
    Watched(resource=PADDLE_TRAINING_JOB, transform=slim_training_job, is_custom=True),
)
# How long a task that was cancelled may take, before it is cancelled again.
_CANCEL_SECONDS = 5.0
# Jobs whose actions are carried out at the same time.
_CONCURRENT_JOBS = 16


@dataclass(frozen=True, kw_only=True)
class ControllerTiming:
    # From a change to the plan: other changes come with it.
    settle_seconds: float = 0.1
    # The longest time between two plans while there are changes.
    plan_interval_seconds: float = 1.0
    # The share of time that planning may take, where that leaves less than the interval between two plans.
    planning_share: float = 0.1
    job_interval_seconds: float = 1.0
    resync_seconds: float = 5.0
    # How often the resources of the cluster are logged, and whenever a machine comes or goes.
    resources_seconds: float = 30.0
    # How often the metrics of jobs and resources are brought up to date.
    metrics_seconds: float = 5.0

    def pause_after(self, step_seconds: float) -> float:
        """Returns how long to wait for the next step after one that has taken so long."""
        return min(self.plan_interval_seconds, step_seconds * (1.0 / self.planning_share - 1.0))


class Controller:
    """`cluster`: of the namespace in which the Lease is. `wall_clock`: seconds since 1970."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        identity: str,
        timing: ControllerTiming | None = None,
        election: ElectionTiming | None = None,
        metrics: ControllerMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._timing = timing or ControllerTiming()
        self._clock, self._wall_clock = clock, wall_clock
        self._metrics = metrics
        self.engine = Engine()
        self._wake = asyncio.Event()
        self._elector = LeaderElector(
            cluster, identity, clock=clock, on_change=lambda leads: self._wake.set(), timing=election
        )
        self._effects = Effects(
            cluster,
            generation=lambda: self._elector.generation,
            is_leader=lambda: self._elector.is_leader,
            on_failure=self._failed,
        )
        everywhere = cluster.all_namespaces()
        self._informers = [
            Informer(cluster=everywhere, watched=each, on_change=self._changed, on_sync=self._wake.set)
            for each in WATCHED
        ]
        self._stuck = StuckMasters(everywhere, on_trouble=self._explained)
        self._busy: dict[str, asyncio.Task[None]] = {}
        # Jobs whose last actions have ended a moment ago.
        self._resting: set[str] = set()
        self._slots = asyncio.Semaphore(_CONCURRENT_JOBS)
        self._resources_at = self._metrics_at = float("-inf")
        self._machines: frozenset[str] = frozenset()
        self._looped_at = clock()

    @property
    def is_synced(self) -> bool:
        return not self.unsynced()

    def unsynced(self) -> list[str]:
        """Returns the kinds of objects that have not been listed yet."""
        return [informer.watched.name for informer in self._informers if not informer.is_synced]

    def loop_age(self) -> float:
        """Returns the seconds since the loop came round last."""
        return self._clock() - self._looped_at

    @property
    def is_leader(self) -> bool:
        return self._elector.is_leader

    async def run(self) -> None:
        """Runs until cancelled; then gives the Lease up."""
        tasks = [asyncio.create_task(self._elector.run())]
        tasks += [asyncio.create_task(informer.run()) for informer in self._informers]
        loop = asyncio.create_task(self._loop())
        try:
            # Each of them runs indefinitely: one that ends has failed.
            done, _ = await asyncio.wait([*tasks, loop], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stuck.close()
            under_way = {loop, *self._busy.values(), *tasks}
            while under_way:
                # A cancellation that meets the end of a `wait_for` is lost, before Python 3.12.
                for task in under_way:
                    task.cancel()
                _, under_way = await asyncio.wait(under_way, timeout=_CANCEL_SECONDS)

    async def _loop(self) -> None:
        timing = self._timing
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._seconds_to_step())
                await asyncio.sleep(timing.settle_seconds)
            self._wake.clear()
            begun = self._looped_at = self._clock()
            if self.is_synced:
                self._log_resources()
                if self.is_leader:
                    self._step()
            self._set_metrics()
            await asyncio.sleep(timing.pause_after(self._clock() - begun))

    def _seconds_to_step(self) -> float:
        """Returns the seconds until a step is due without a change."""
        if not self.is_leader:
            return self._timing.resync_seconds
        now = self._wall_clock()
        due = max(self.engine.seconds_to_due(now), self._timing.plan_interval_seconds)
        # On a quiet cluster nothing else tells that a pause is over.
        return min(self._timing.resync_seconds, due, self.engine.seconds_to_pause_end(now))

    def _step(self) -> None:
        begun = self._clock()
        step = self.engine.step(self._wall_clock(), busy=self._busy.keys() | self._resting)
        if self._metrics is not None:
            self._metrics.add_step(self._clock() - begun)
        for job_id, actions in step.actions.items():
            self._busy[job_id] = asyncio.create_task(self._carry_out(job_id, actions, step))

    async def _carry_out(self, job_id: str, actions: tuple[Action, ...], step: Step) -> None:
        try:
            async with self._slots:
                is_done = await self._effects.carry_out(actions)
            if is_done:
                self.engine.carried_out(job_id, actions)
                self._count(actions, step)
        except Exception:
            # A job that breaks the controller must not stop the others.
            log.exception("Cannot carry out the actions of %s", job_id)
        finally:
            del self._busy[job_id]
            self._resting.add(job_id)
            asyncio.get_running_loop().call_later(self._timing.job_interval_seconds, self._rested, job_id)

    def _rested(self, job_id: str) -> None:
        self._resting.discard(job_id)
        self._wake.set()

    def _failed(self, action: Action, error: UserError) -> None:
        job_id = job_id_of(action.job)
        self.engine.failed(job_id, action, error, now=self._wall_clock())
        if self._metrics is not None:
            self._metrics.add_failure(type(action).__name__)

    def _count(self, actions: tuple[Action, ...], step: Step) -> None:
        if self._metrics is None:
            return
        for action in actions:
            if isinstance(action, StartJob):
                self._metrics.add_start(self._wall_clock() - action.job.created_seconds)
            decision = step.decisions.get(action.job.key)
            if isinstance(action, StartJob | WriteDesired) and decision is not None:
                self._metrics.add_decision(type(decision).__name__)

    def _set_metrics(self) -> None:
        metrics, now = self._metrics, self._clock()
        if metrics is None:
            return
        metrics.set_leader(self.is_leader)
        metrics.set_queue_depth(len(self._busy))
        if now - self._metrics_at >= self._timing.metrics_seconds:
            self._metrics_at = now
            metrics.set_cluster(self.engine.resources())
            phases = self.engine.phases()
            waiting = self.engine.longest_waiting_seconds(self._wall_clock())
            metrics.set_jobs(phases, longest_waiting_seconds=waiting)

    def _changed(self, watched: Watched, change: Change) -> None:
        self.engine.apply(resource_of(watched.resource).kind, change.document, gone=change.gone)
        if watched.resource == "Pod" and is_master(change.document):
            self._stuck.observe(change.document, gone=change.gone)
        if self.engine.has_changes:
            self._wake.set()

    def _explained(self, pod: Document, words: str) -> None:
        self.engine.view.explain_pod(pod, words)
        self._wake.set()

    def _log_resources(self) -> None:
        machines = frozenset(self.engine.view.machines)
        now = self._clock()
        if machines == self._machines and now - self._resources_at < self._timing.resources_seconds:
            return
        self._machines, self._resources_at = machines, now
        log.info("%s", self.engine.resources().line())
