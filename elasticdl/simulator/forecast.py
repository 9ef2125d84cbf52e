"""Forecasts a cluster: runs the simulator forward from its state, with or without one more job.

Bound pods of others stay where they are. Jobs that have reported how much work is left, and how fast they
do it, finish at a known time; others run on. The speed at other sizes comes from the model that
the planner itself fits to the measurements; without measurements each worker does one unit of work per
second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from elasticdl.scheduling.cluster import ClusterState, Machine
from elasticdl.scheduling.demand import JobDemand, Observation, Progress
from elasticdl.scheduling.growth.speed import SpeedModel, fit_speed, goodputs
from elasticdl.scheduling.requirements import PODS
from elasticdl.simulator.engine import Simulation
from elasticdl.simulator.policies.elasticdl import PlannerPolicy
from elasticdl.simulator.run_result import JobResult, RunResult
from elasticdl.simulator.traces import Placement
from elasticdl.simulator.work import BatchChooser, Work, WorkProgress
from elasticdl.simulator.workload import CPU, GPU, Rules, Service, Workload, WorkloadJob

# Jobs without an end are followed for so long.
HORIZON_SECONDS = 7 * 86400.0
_POD_START_SECONDS = 3.0
_POD_STOP_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class ReportedWork(Work):
    """Work of a job as its master reports it: so much is left, and it was measured to be so fast."""

    left: float
    done: float
    observations: tuple[Observation, ...]
    model: SpeedModel | None

    def speed(self, placement: Placement) -> float:
        """Units of work per second."""
        size = sum(placement)
        if size <= 0:
            return 0.0
        for seen in self.observations:
            if (seen.machines, seen.replicas) == (len(placement), size):
                return size * seen.local_batch / seen.step_seconds
        if self.model is None:
            return float(size)
        machines = np.array([float(len(placement))])
        return float(goodputs(self.model, None, None, machines, np.array([float(size)]))[0][0])

    def start(self, *, chooser: BatchChooser | None) -> WorkProgress:
        return _ReportedProgress(self)

    def isolated_seconds(self, size: int) -> float:
        return self.left / self.speed((max(size, 1),))


class _ReportedProgress(WorkProgress):
    def __init__(self, work: ReportedWork) -> None:
        self._work = work
        self._left = work.left
        self._placement: Placement = ()
        self._observations = work.observations

    def resize(self, placement: Placement) -> None:
        self._placement = placement

    def advance(self, seconds: float) -> float | None:
        speed = self._work.speed(self._placement)
        if speed <= 0:
            return None
        if self._left <= speed * seconds + 1e-9:
            needed = self._left / speed
            self._left = 0.0
            return needed
        self._left -= speed * seconds
        return None

    def seconds_left(self) -> float | None:
        speed = self._work.speed(self._placement)
        return self._left / speed if speed > 0 and math.isfinite(self._left) else None

    def done_share(self) -> float:
        total = self._work.left + self._work.done
        return 0.0 if not math.isfinite(total) else 1.0 - self._left / max(total, 1e-12)

    def reported(self) -> Progress:
        if not math.isfinite(self._left):
            return Progress()
        total = self._work.done + self._work.left
        return Progress(work_done=total - self._left, work_total=total)

    @property
    def observations(self) -> tuple[Observation, ...]:
        return self._observations


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """When a job starts and ends, in seconds from now; None: not within the time that was looked at, or
    unknown.
    """

    job: str
    starts_in: float | None
    ends_in: float | None
    sizes: tuple[tuple[float, int], ...]
    rejected: str = ""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    outlooks: Mapping[str, Outlook]
    result: RunResult


def forecast(state: ClusterState, extra: JobDemand | None = None) -> Forecast:
    """Returns when every job of the cluster would start and end; `extra` is submitted now."""
    demands = list(state.jobs)
    if extra is not None:
        demands.append(replace(extra, submitted_at_seconds=0.0))
    jobs = [_workload_job(job, state) for job in demands]
    machines, services = _others(state)
    endless = any(isinstance(job.work, ReportedWork) and not math.isfinite(job.work.left) for job in jobs)
    cost = max((job.resize_cost_seconds for job in state.jobs), default=30.0)
    workload = Workload(
        name="forecast",
        machines=machines,
        jobs=tuple(jobs),
        services=services,
        quotas=state.quotas,
        rules=Rules(
            interval=300.0,
            reacts=True,
            resize_cost=cost,
            pod_start=_POD_START_SECONDS,
            pod_stop=_POD_STOP_SECONDS,
        ),
        horizon=HORIZON_SECONDS if endless else None,
        resource=GPU if any(machine.allocatable.get(GPU, 0) for machine in machines) else CPU,
    )
    result = Simulation(workload, PlannerPolicy(interval_seconds=300.0)).run()
    names = {job.name: demand.key for job, demand in zip(jobs, demands, strict=True)}
    return Forecast(
        outlooks={names[one.name]: _outlook(one, names[one.name]) for one in result.jobs}, result=result
    )


def _outlook(result: JobResult, key: str) -> Outlook:
    return Outlook(
        job=key,
        starts_in=result.started_at,
        ends_in=result.completed_at,
        sizes=tuple(result.sizes),
        rejected=result.rejected,
    )


def _workload_job(job: JobDemand, state: ClusterState) -> WorkloadJob:
    initial: dict[str, dict[str, int]] = {}
    for pod in state.pods:
        if (
            pod.job_key == job.key
            and pod.role is not None
            and pod.machine is not None
            and pod.occupies_resources
        ):
            held = initial.setdefault(pod.role, {})
            held[pod.machine] = held.get(pod.machine, 0) + 1
    total, done = job.progress.work_total, job.progress.work_done
    return WorkloadJob(
        # Names are unique within a namespace only.
        name=job.name if job.namespace == "default" else f"{job.namespace}.{job.name}",
        namespace=job.namespace,
        groups=job.groups,
        submitted_at_seconds=min(job.submitted_at_seconds, 0.0),
        requested=job.elastic_group.maximum,
        priority=job.priority,
        weight=job.weight,
        work=ReportedWork(
            left=math.inf if total is None else max(total - done, 1e-6),
            done=done,
            observations=job.observations,
            model=fit_speed(job.observations) if job.observations else None,
        ),
        initial=initial,
        largest_run_size=job.largest_run_size,
    )


def _others(state: ClusterState) -> tuple[tuple[Machine, ...], tuple[Service, ...]]:
    """Machines without what bound pods of others hold, and the unbound ones as services of one replica."""
    keys = {job.key for job in state.jobs}
    held: dict[str, dict[str, int]] = {}
    services: list[Service] = []
    for pod in state.pods:
        if pod.job_key in keys or not pod.occupies_resources:
            continue
        if pod.machine is None:
            services.append(
                Service(name=pod.key, requests=pod.requests, targets=((0.0, 1),), priority=pod.priority)
            )
            continue
        used = held.setdefault(pod.machine, {})
        for key, value in pod.requests.items():
            used[key] = used.get(key, 0) + value
        used[PODS] = used.get(PODS, 0) + 1
    machines = tuple(
        replace(
            machine,
            allocatable={
                key: max(0, value - held.get(machine.name, {}).get(key, 0))
                for key, value in machine.allocatable.items()
            },
        )
        for machine in state.machines
    )
    return machines, tuple(services)
