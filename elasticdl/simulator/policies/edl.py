"""The autoscaler of PaddlePaddle EDL, with its faults, as a peer to compare with.

Every 5 seconds it compares sums over the whole cluster. Jobs are ordered by fulfilment, (size −
minimum)/(maximum − minimum). In rounds, each job in ascending order gets one more trainer while the sum of
all requests, bound or not, stays below the load target; then each job in descending order loses one while
the sum is above it; until a round changes nothing. Only jobs whose trainers all run take part, or all jobs
while some job has no running trainer at all. Pods are placed by the cluster's scheduler, so a job may hold
its parameter servers while its trainers never fit. The dry run adds to the idle capacity of a machine where
it should subtract; both are kept.
"""

from __future__ import annotations

from elasticdl.simulator.policy import ClusterView, JobView, PolicyPlan
from elasticdl.simulator.work import BatchChooser
from elasticdl.simulator.workload import CPU, GPU, MEMORY, WorkloadJob

# The load target of the published experiments.
MAX_LOAD_DESIRED = 0.97
LOOP_SECONDS = 5.0
# Its trainers do not react to SIGTERM: the published logs show them for the whole grace period of Kubernetes.
STOP_SECONDS = 30.0


class EdlPolicy:
    def __init__(self, *, max_load_desired: float = MAX_LOAD_DESIRED) -> None:
        self._max_load = max_load_desired

    @property
    def name(self) -> str:
        return "edl"

    @property
    def interval_seconds(self) -> float | None:
        return LOOP_SECONDS

    @property
    def stop_seconds(self) -> float | None:
        return STOP_SECONDS

    @property
    def chooser(self) -> BatchChooser | None:
        return None

    def sizes(self, job: WorkloadJob) -> tuple[int, int]:
        return job.elastic.minimum, job.elastic.maximum

    def plan(self, view: ClusterView) -> PolicyPlan:
        counts: dict[str, dict[str, int]] = {}
        stable: list[JobView] = []
        has_pending = False
        states: list[tuple[JobView, int, int]] = []
        for name, job in view.jobs.items():
            if not job.pods:
                # The controller creates all pods of a new job at once, trainers at their minimum.
                counts[name] = {group.role: max(group.minimum, 1) for group in job.job.groups}
                continue
            role = job.job.elastic.role
            total = job.count(role) + job.terminating
            running = job.running.get(role, 0)
            pending = job.count(role) - running
            states.append((job, total, running))
            has_pending |= total == pending
        for job, total, running in states:
            if (total == running or has_pending) and job.job.elastic.maximum > job.job.elastic.minimum:
                stable.append(job)
        for name, size in self._sizes(view, stable).items():
            counts[name] = {view.jobs[name].job.elastic.role: size}
        return PolicyPlan(counts=counts)

    def _sizes(self, view: ClusterView, jobs: list[JobView]) -> dict[str, int]:
        total: dict[str, int] = {}
        for machine in view.machines:
            for key, value in machine.allocatable.items():
                total[key] = total.get(key, 0) + value
        requested = {key: view.requested.get(key, 0) for key in {CPU, GPU, MEMORY, *total}}
        idle = [
            {key: value - used.get(key, 0) for key, value in machine.allocatable.items()}
            for machine, used in zip(view.machines, view.used, strict=True)
        ]
        current = {job.job.name: job.count(job.job.elastic.role) for job in jobs}
        difference = dict.fromkeys(current, 0)
        ordered = sorted(jobs, key=lambda job: (_fulfilment(job, current[job.job.name]), _weight(job)))

        def take(job: JobView, count: int, machine: int | None) -> None:
            difference[job.job.name] += count
            for key, value in job.job.elastic.requests.items():
                requested[key] = requested.get(key, 0) + value * count
                if machine is not None and key in (CPU, MEMORY):
                    # The published sign.
                    idle[machine][key] = idle[machine].get(key, 0) + value * count

        changed = True
        while changed:
            changed = False
            for job in ordered:
                planned = current[job.job.name] + difference[job.job.name]
                group = job.job.elastic
                if planned >= group.maximum:
                    continue
                place = _assignable(job, idle)
                if place is not None and self._has_room(job, requested, total):
                    take(job, 1, place)
                    changed = True
            for job in reversed(ordered):
                planned = current[job.job.name] + difference[job.job.name]
                if planned > job.job.elastic.minimum and self._is_overloaded(requested, total):
                    take(job, -1, None)
                    changed = True
        return {name: current[name] + change for name, change in difference.items() if change}

    def _has_room(self, job: JobView, requested: dict[str, int], total: dict[str, int]) -> bool:
        need = job.job.elastic.requests
        if need.get(MEMORY, 0) and total.get(MEMORY, 0) - requested[MEMORY] <= need[MEMORY]:
            return False
        if total.get(CPU) and total[CPU] * self._max_load - requested[CPU] < need.get(CPU, 0):
            return False
        return not need.get(GPU, 0) or total.get(GPU, 0) - requested[GPU] >= need[GPU]

    def _is_overloaded(self, requested: dict[str, int], total: dict[str, int]) -> bool:
        # The published rule has the target here for GPUs too, and not above: its dry run would never end with GPUs.
        return requested[CPU] > int(total.get(CPU, 0) * self._max_load) or requested[GPU] > total.get(GPU, 0)


def _fulfilment(job: JobView, size: int) -> float:
    group = job.job.elastic
    return 1.0 if group.maximum == group.minimum else (size - group.minimum) / (group.maximum - group.minimum)


def _weight(job: JobView) -> tuple[int, int, int]:
    need = job.job.elastic.requests
    return need.get(GPU, 0), need.get(CPU, 0), need.get(MEMORY, 0)


def _assignable(job: JobView, idle: list[dict[str, int]]) -> int | None:
    need = job.job.elastic.requests
    for number, room in enumerate(idle):
        if all(room.get(key, 0) >= need.get(key, 0) for key in (CPU, MEMORY)):
            return number
    return None
