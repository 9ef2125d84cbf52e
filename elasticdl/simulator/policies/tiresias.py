"""Tiresias with two queues, as the Pollux artifact simulates it: discretised least attained service, gangs,
preemption.

Jobs run at the size and batch size that their users asked for. A job starts in the first queue; once it has
attained 16 GPU hours it is demoted to the second one, for good. At every interval both queues are walked in
order and each job runs whose size still fits into the number of GPUs that is left; the others stop.
Placement is greedy: the machine with most free GPUs first.

It exists to calibrate the simulator: its published mean completion times must be reproduced before any
other figure counts.
"""

from __future__ import annotations

from elasticdl.simulator.policies.fixed import place_gang
from elasticdl.simulator.policy import ClusterView, PolicyPlan
from elasticdl.simulator.work import BatchChooser
from elasticdl.simulator.workload import WorkloadJob

# Attained GPU seconds after which a job is demoted.
DEMOTION_SECONDS = 16 * 3600.0


class TiresiasPolicy:
    def __init__(self, *, demotion_seconds: float = DEMOTION_SECONDS) -> None:
        self._demotion = demotion_seconds
        self._first: list[str] = []
        self._second: list[str] = []
        self._executed: dict[str, float] = {}
        self._running: set[str] = set()
        self._last = 0.0

    @property
    def name(self) -> str:
        return "tiresias"

    @property
    def interval_seconds(self) -> float | None:
        return None

    @property
    def stop_seconds(self) -> float | None:
        return None

    @property
    def chooser(self) -> BatchChooser | None:
        return None

    def sizes(self, job: WorkloadJob) -> tuple[int, int]:
        return job.requested, job.requested

    def plan(self, view: ClusterView) -> PolicyPlan:
        jobs = view.jobs
        elapsed, self._last = view.now_seconds - self._last, view.now_seconds
        self._first = [name for name in self._first if name in jobs]
        self._second = [name for name in self._second if name in jobs]
        known = {*self._first, *self._second}
        self._first += [name for name in jobs if name not in known]
        for name in jobs:
            if name not in self._running:
                continue
            self._executed[name] = self._executed.get(name, 0.0) + elapsed
            if name in self._first and self._executed[name] * jobs[name].job.requested >= self._demotion:
                self._first.remove(name)
                self._second.append(name)
        queue = [*self._first, *self._second]
        if all(len(jobs[name].job.groups) == 1 for name in queue):
            return PolicyPlan(placements=self._place_counts(view, queue))
        return PolicyPlan(placements=self._place_gangs(view, queue))

    def _place_counts(self, view: ClusterView, queue: list[str]) -> dict[str, dict[str, dict[int, int]]]:
        """Places jobs as published: the number of free GPUs decides whether a job runs, and then it is placed."""
        jobs = view.jobs
        need = jobs[queue[0]].job.elastic.requests if queue else {}
        resource = next((key for key, value in need.items() if value > 0), "")
        free = {
            number: machine.allocatable.get(resource, 0) // max(need.get(resource, 1), 1)
            for number, machine in enumerate(view.machines)
        }
        left = sum(free.values())
        self._running = set()
        for name in queue:
            if jobs[name].job.requested <= left:
                self._running.add(name)
                left -= jobs[name].job.requested
        placements: dict[str, dict[str, dict[int, int]]] = {}
        for name in queue:
            role = jobs[name].job.elastic.role
            held = dict(jobs[name].placement.get(role, {}))
            placements[name] = {role: held if name in self._running else {}}
            for machine, count in placements[name][role].items():
                free[machine] -= count
        for name in queue:
            role = jobs[name].job.elastic.role
            if name not in self._running or placements[name][role]:
                continue
            missing = jobs[name].job.requested
            while missing > 0:
                machine = max(free, key=lambda number: free[number])
                count = min(free[machine], missing)
                placements[name][role][machine] = count
                free[machine] -= count
                missing -= count
        return placements

    def _place_gangs(self, view: ClusterView, queue: list[str]) -> dict[str, dict[str, dict[int, int]]]:
        """Jobs of several role groups: a job runs if its whole gang fits where those before it have left room."""
        free = [dict(machine.allocatable) for machine in view.machines]
        for pod in view.service_pods:
            if pod.machine is not None:
                for key, value in pod.requests.items():
                    free[pod.machine][key] = free[pod.machine].get(key, 0) - value
        placements: dict[str, dict[str, dict[int, int]]] = {}
        self._running = set()
        for name in queue:
            job = view.jobs[name]
            held = {role: dict(machines) for role, machines in job.placement.items() if machines}
            if held and _take(job.job, held, free):
                placements[name] = held
            else:
                placements[name] = place_gang(job.job, job.job.requested, view.machines, free) or {}
            if placements[name]:
                self._running.add(name)
        return placements


def _take(job: WorkloadJob, held: dict[str, dict[int, int]], free: list[dict[str, int]]) -> bool:
    """Takes the room that a job holds already, if it is still there."""
    after = [dict(room) for room in free]
    for group in job.groups:
        for machine, count in held.get(group.role, {}).items():
            for key, value in group.requests.items():
                after[machine][key] = after[machine].get(key, 0) - value * count
                if after[machine][key] < 0:
                    return False
    free[:] = after
    return True
