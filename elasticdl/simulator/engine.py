"""The virtual clock: runs a workload under a policy.

Time moves in whole seconds from event to event: arrivals, pods that start or have gone, jobs that finish, services that
change, retries of the cluster's scheduler, and calls of the policy. The engine owns pods and machines; a policy only
returns plans. A plan beyond the capacity of a machine is never executed: its pods wait until there is room.

If a policy leaves jobs waiting forever, the run ends when nothing can happen any more; these jobs are reported as
stuck.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from elasticdl.errors import UserError
from elasticdl.simulator.policy import ClusterView, JobView, PodView, Policy, PolicyPlan, RolePlacement
from elasticdl.simulator.run_result import JobResult, RunResult, Sample, jain_index
from elasticdl.simulator.work import WorkProgress
from elasticdl.simulator.workload import Service, Workload, WorkloadJob

# A year: a simulation that is still going has a policy that starves its jobs.
_LONGEST = 365 * 86400.0
_IDLE_PLANS = 200
ProgressCallback = Callable[[float, int, int], None]


class Phase(Enum):
    """PENDING → STARTING → RUNNING → TERMINATING; any of them may be deleted."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    TERMINATING = "terminating"


@dataclass(kw_only=True, eq=False)
class _Pod:
    name: str
    number: int
    owner: str
    role: str
    requests: Mapping[str, int]
    priority: int
    is_service: bool
    phase: Phase = Phase.PENDING
    # Where it is bound.
    machine: int | None = None
    # Where the policy wants it; it is bound there as soon as there is room.
    pinned: int | None = None
    due: float = math.inf
    retry_at: float = 0.0
    backoff: float = 0.0

    @property
    def place(self) -> int | None:
        return self.machine if self.machine is not None else self.pinned


class _Job:
    def __init__(self, job: WorkloadJob, policy: Policy) -> None:
        self.job = job
        self.elastic = job.elastic
        self.minimum, self.maximum = policy.sizes(job)
        self.progress: WorkProgress = job.work.start(chooser=policy.chooser)
        self.pods: list[_Pod] = []
        self.result = JobResult(name=job.name, submitted_at=job.submitted_at_seconds, requested=job.requested)
        self.delay = 0.0
        # Placement of the elastic instances that the work was last resized to.
        self.placed: tuple[int, ...] = ()
        self.wanted: tuple[tuple[int, int], ...] = ()
        self.last_resize: float | None = None
        self.largest_run = 0
        self.share_seconds = 0.0
        self.present_seconds = 0.0

    @property
    def is_done(self) -> bool:
        return self.result.completed_at is not None or bool(self.result.rejected)

    def can_train(self) -> bool:
        counts: dict[str, int] = {}
        for pod in self.pods:
            if pod.phase is Phase.RUNNING:
                counts[pod.role] = counts.get(pod.role, 0) + 1
        return all(
            counts.get(group.role, 0) >= (max(self.minimum, 1) if group is self.elastic else group.minimum)
            for group in self.job.groups
        )


class Simulation:
    """A run of a workload under a policy. The same arguments give the same result."""

    def __init__(self, workload: Workload, policy: Policy, *, seed: int = 0) -> None:
        if not workload.machines or all(not any(m.allocatable.values()) for m in workload.machines):
            raise UserError(
                f"Workload {workload.name}: the cluster has no machines.",
                hint="Add machines, or use --nodes.",
            )
        workload = workload.with_requested_pods()
        self._workload = workload
        self._policy = policy
        self._rules = workload.rules
        self._random = random.Random(seed)
        self._now = 0.0
        self._arrivals = sorted(workload.jobs, key=lambda job: (job.submitted_at_seconds, job.name))
        self._coming = 0
        self._jobs: dict[str, _Job] = {}
        self._active: dict[str, _Job] = {}
        self._results: list[JobResult] = []
        self._services: dict[str, list[_Pod]] = {service.name: [] for service in workload.services}
        self._pods_made = 0
        self._free = [dict(machine.allocatable) for machine in workload.machines]
        self._index = {machine.name: number for number, machine in enumerate(workload.machines)}
        self._total = sum(machine.allocatable.get(workload.resource, 0) for machine in workload.machines)
        self._samples: list[Sample] = []
        self._plan_seconds: list[float] = []
        self._next_tick = self._interval()
        self._react_at = math.inf
        self._reserved: Mapping[str, int] = {}
        # Bound pods in order of their next change would need a heap; there are few enough to look at all that
        # wait for something.
        self._timed: set[_Pod] = set()
        # Plans in a row after which nothing had changed and no job was training.
        self._idle_plans = 0

    def run(self, *, on_progress: ProgressCallback | None = None) -> RunResult:
        horizon = self._workload.horizon if self._workload.horizon is not None else _LONGEST
        self._enter(0.0)
        while self._now < horizon:
            following = min(self._next_event(), horizon)
            if not math.isfinite(following) or self._is_over() or self._is_stuck():
                break
            self._advance(following - self._now)
            self._enter(following)
            if on_progress is not None:
                on_progress(self._now, len(self._results), len(self._arrivals))
        return self._finish(horizon)

    def service_use(self) -> list[int]:
        """Returns how much of the workload's resource the pods of services hold on each machine."""
        use = [0] * len(self._workload.machines)
        for pods in self._services.values():
            for pod in pods:
                if pod.machine is not None:
                    use[pod.machine] += pod.requests.get(self._workload.resource, 0)
        return use

    # Time

    def _interval(self) -> float:
        own = self._policy.interval_seconds
        return own if own is not None and self._rules.reacts else self._rules.interval

    def _is_over(self) -> bool:
        return self._workload.horizon is None and not self._active and self._coming >= len(self._arrivals)

    def _is_stuck(self) -> bool:
        """Whether nothing has moved for so many plans that nothing will."""
        return (
            self._idle_plans >= _IDLE_PLANS
            and self._workload.horizon is None
            and self._coming >= len(self._arrivals)
            and not self._timed
            and all(at <= self._now for service in self._workload.services for at, _ in service.targets)
        )

    def _next_event(self) -> float:
        times = [self._react_at]
        if self._coming < len(self._arrivals):
            arrival = self._arrivals[self._coming].submitted_at_seconds
            # With a fixed interval an arrival is noticed at the next plan.
            times.append(arrival if self._rules.reacts else self._tick_after(arrival))
        if self._active:
            times.append(self._next_tick)
        for service in self._workload.services:
            times += [at for at, _ in service.targets if at > self._now][:1]
        times += [pod.due for pod in self._timed]
        if self._rules.reacts:
            for job in self._active.values():
                times.append(self._completion_of(job))
        times = [math.ceil(at - 1e-6) if math.isfinite(at) else at for at in times]
        following = min(times, default=math.inf)
        if self._rules.scheduler_backoff:
            retries = [pod.retry_at for pod in self._unbound() if pod.retry_at > self._now]
            following = min([following, *(math.ceil(at) for at in retries)])
        return max(following, self._now + 1.0)

    def _tick_after(self, second: float) -> float:
        """Returns the first plan at or after a second."""
        intervals = max(0, math.ceil((second - self._next_tick) / self._interval() - 1e-9))
        return self._next_tick + intervals * self._interval()

    def _completion_of(self, job: _Job) -> float:
        left = job.progress.seconds_left() if job.placed else None
        return math.inf if left is None else self._now + job.delay + left

    def _advance(self, seconds: float) -> None:
        if seconds <= 0:
            return
        count = len(self._active)
        for job in self._active.values():
            job.present_seconds += seconds
            job.share_seconds += seconds / count
            # At most the part of the step since it was submitted, where arrivals fall between two plans.
            if not job.placed:
                continue
            size = sum(job.placed)
            job.result.instance_seconds += seconds * size
            delay = min(job.delay, seconds)
            job.delay -= delay
            if seconds <= delay:
                continue
            job.largest_run = max(job.largest_run, size)
            done_after = job.progress.advance(seconds - delay)
            if done_after is not None:
                job.result.completed_at = self._now + delay + math.ceil(done_after - 1e-6)
                # The instances are idle from then on until the next plan.
                job.result.instance_seconds -= size * max(0.0, self._now + seconds - job.result.completed_at)

    # Events

    def _enter(self, now: float) -> None:
        """Handles everything that happens at this second."""
        self._now = now
        changed = self._retire_jobs()
        changed |= self._change_pods()
        changed |= self._admit_arrivals()
        changed |= self._change_services()
        self._schedule()
        if changed and self._rules.reacts:
            self._react_at = min(self._react_at, now + self._rules.reaction)
        is_tick = now >= self._next_tick
        if is_tick or now >= self._react_at:
            while self._next_tick <= now:
                self._next_tick += self._interval()
            self._react_at = math.inf
            if self._active:
                self._plan()
                self._schedule()
            trains = any(job.placed for job in self._active.values())
            self._idle_plans = 0 if changed or trains or self._timed else self._idle_plans + 1
        self._update_placements()
        self._sample()

    def _retire_jobs(self) -> bool:
        gone = [name for name, job in self._active.items() if job.is_done]
        for name in gone:
            job = self._active.pop(name)
            for pod in list(job.pods):
                self._delete(pod)
            job.placed = ()
            self._settle(job)
        return bool(gone)

    def _settle(self, job: _Job) -> None:
        result = job.result
        result.done_share = 1.0 if result.completed_at is not None else job.progress.done_share()
        result.isolated_seconds = job.job.work.isolated_seconds(1)
        if job.present_seconds > 0:
            whole = self._largest_size(job)
            share = max(1, min(job.maximum, round(whole * job.share_seconds / job.present_seconds)))
            result.fair_seconds = job.job.work.isolated_seconds(share)
        self._results.append(result)

    def _largest_size(self, job: _Job) -> int:
        """Returns how many elastic instances the whole cluster would hold."""
        requests = {key: need for key, need in job.elastic.requests.items() if need > 0}
        if not requests:
            return job.maximum
        return sum(
            min(machine.allocatable.get(key, 0) // need for key, need in requests.items())
            for machine in self._workload.machines
        )

    def _change_pods(self) -> bool:
        changed = False
        for pod in sorted(self._timed, key=attrgetter("number")):
            if pod.due > self._now:
                continue
            changed = True
            self._timed.discard(pod)
            pod.due = math.inf
            if pod.phase is Phase.STARTING:
                pod.phase = Phase.RUNNING
            elif pod.phase is Phase.TERMINATING:
                self._remove(pod)
        return changed

    def _admit_arrivals(self) -> bool:
        changed = False
        while self._coming < len(self._arrivals):
            job = self._arrivals[self._coming]
            if job.submitted_at_seconds > self._now:
                break
            self._coming += 1
            changed = True
            reason = self._never_fits(job)
            running = _Job(job, self._policy)
            self._jobs[job.name] = running
            if reason:
                running.result.rejected = reason
                self._results.append(running.result)
            else:
                self._active[job.name] = running
                self._resume(running)
        return changed

    def _resume(self, job: _Job) -> None:
        """Gives a job the instances that it has when the simulation begins."""
        requests = {group.role: group.requests for group in job.job.groups}
        for role, machines in job.job.initial.items():
            for name, count in machines.items():
                for _ in range(count):
                    pod = self._new_pod(job.job.name, role, requests[role], job.job.priority)
                    pod.machine, pod.phase = self._index[name], Phase.RUNNING
                    for key, need in pod.requests.items():
                        self._free[pod.machine][key] = self._free[pod.machine].get(key, 0) - need
                    job.pods.append(pod)
        held = job.job.initial.get(job.elastic.role, {})
        if held:
            job.wanted = tuple((self._index[name], count) for name, count in held.items())
            job.last_resize = self._now
            job.largest_run = max(sum(held.values()), job.job.largest_run_size)
            job.result.sizes.append((self._now, sum(held.values())))

    def _never_fits(self, job: WorkloadJob) -> str:
        """Why no machine or not even all of them together can hold the job at its smallest; empty if they can."""
        minimum, _ = self._policy.sizes(job)
        for group in job.groups:
            count = max(minimum, 1) if group is job.elastic else group.minimum
            requests = {key: need for key, need in group.requests.items() if need > 0}
            if not requests or count == 0:
                continue
            room = sum(
                min(machine.allocatable.get(key, 0) // need for key, need in requests.items())
                for machine in self._workload.machines
            )
            if room < count:
                return f"larger than the cluster: {count} {group.role} needed, the empty machines hold {room}"
        return ""

    def _change_services(self) -> bool:
        changed = False
        for service in self._workload.services:
            pods = self._services[service.name]
            target = self._target(service)
            alive = [pod for pod in pods if pod.phase is not Phase.TERMINATING]
            for _ in range(target - len(alive)):
                changed = True
                pods.append(
                    self._new_pod(
                        service.name, "replica", service.requests, service.priority, is_service=True
                    )
                )
            # Pending ones first, then the newest.
            order = sorted(alive, key=lambda pod: (pod.phase is not Phase.PENDING, -pod.number))
            for pod in order[: max(0, len(alive) - target)]:
                changed = True
                self._delete(pod)
        return changed

    def _target(self, service: Service) -> int:
        count = 0
        for at, replicas in service.targets:
            if at <= self._now:
                count = replicas
        return count

    # Pods

    def _new_pod(
        self, owner: str, role: str, requests: Mapping[str, int], priority: int, *, is_service: bool = False
    ) -> _Pod:
        self._pods_made += 1
        return _Pod(
            name=f"{owner}-{role}-{self._pods_made}",
            number=self._pods_made,
            owner=owner,
            role=role,
            requests=requests,
            priority=priority,
            is_service=is_service,
        )

    def _fits(self, requests: Mapping[str, int], machine: int) -> bool:
        free = self._free[machine]
        return all(free.get(key, 0) >= need for key, need in requests.items())

    def _bind(self, pod: _Pod, machine: int) -> None:
        pod.machine = machine
        free = self._free[machine]
        for key, need in pod.requests.items():
            free[key] = free.get(key, 0) - need
        seconds = self._rules.pod_start
        if self._rules.start_jitter:
            seconds += self._random.randint(0, int(self._rules.start_jitter))
        if seconds > 0:
            pod.phase, pod.due = Phase.STARTING, self._now + seconds
            self._timed.add(pod)
        else:
            pod.phase = Phase.RUNNING

    def _delete(self, pod: _Pod) -> None:
        if pod.phase is Phase.TERMINATING:
            return
        seconds = self._rules.pod_stop
        if seconds > 0 and not pod.is_service:
            own = self._policy.stop_seconds
            seconds = seconds if own is None else own
        if pod.machine is None or seconds <= 0:
            self._timed.discard(pod)
            self._remove(pod)
            return
        pod.phase, pod.due = Phase.TERMINATING, self._now + seconds
        self._timed.add(pod)

    def _remove(self, pod: _Pod) -> None:
        if pod.machine is not None:
            free = self._free[pod.machine]
            for key, need in pod.requests.items():
                free[key] += need
        pod.phase = Phase.TERMINATING
        (self._services[pod.owner] if pod.is_service else self._jobs[pod.owner].pods).remove(pod)

    def _unbound(self) -> list[_Pod]:
        pods = [pod for service in self._services.values() for pod in service if pod.phase is Phase.PENDING]
        for job in self._active.values():
            pods += [pod for pod in job.pods if pod.phase is Phase.PENDING]
        return pods

    def _schedule(self) -> None:
        """The cluster's own scheduler: binds pending pods by priority and age, each to the machine with most
        room.
        """
        waiting = sorted(self._unbound(), key=lambda pod: (-pod.priority, pod.number))
        hopeless: set[tuple[tuple[str, int], ...]] = set()
        for pod in waiting:
            if pod.pinned is not None:
                if self._fits(pod.requests, pod.pinned):
                    self._bind(pod, pod.pinned)
                continue
            if pod.retry_at > self._now:
                continue
            kind = tuple(sorted(pod.requests.items()))
            machine = None
            if kind not in hopeless:
                machine = self._reserved.get(pod.name)
                if machine is None or not self._fits(pod.requests, machine):
                    machine = self._most_room(pod.requests)
            if machine is not None:
                self._bind(pod, machine)
                continue
            hopeless.add(kind)
            if self._rules.scheduler_backoff:
                pod.backoff = min(max(1.0, 2 * pod.backoff), self._rules.scheduler_backoff)
                pod.retry_at = self._now + pod.backoff

    def _most_room(self, requests: Mapping[str, int]) -> int | None:
        best: tuple[float, float] | None = None
        found = None
        for number, machine in enumerate(self._workload.machines):
            if not machine.takes_pods or not self._fits(requests, number):
                continue
            free = self._free[number]
            shares = [
                (free.get(key, 0) - need) / machine.allocatable[key]
                for key, need in requests.items()
                if need > 0 and machine.allocatable.get(key, 0) > 0
            ]
            score = (sum(shares) / len(shares) if shares else 0.0, self._random.random())
            if best is None or score > best:
                best, found = score, number
        return found

    # Plans

    def _plan(self) -> None:
        view = self._view()
        begun = time.perf_counter()
        plan = self._policy.plan(view)
        self._plan_seconds.append(time.perf_counter() - begun)
        self._apply(plan)

    def _view(self) -> ClusterView:
        jobs: dict[str, JobView] = {}
        requested: dict[str, int] = {}
        for name, job in self._active.items():
            placement: dict[str, dict[int, int]] = {group.role: {} for group in job.job.groups}
            unbound: dict[str, int] = {}
            running: dict[str, int] = {}
            views: list[PodView] = []
            terminating = 0
            for pod in job.pods:
                _add(requested, pod.requests)
                if pod.phase is Phase.TERMINATING:
                    terminating += 1
                    continue
                views.append(_view_of(pod))
                if pod.place is None:
                    unbound[pod.role] = unbound.get(pod.role, 0) + 1
                else:
                    role = placement[pod.role]
                    role[pod.place] = role.get(pod.place, 0) + 1
                if pod.phase is Phase.RUNNING:
                    running[pod.role] = running.get(pod.role, 0) + 1
            jobs[name] = JobView(
                job=job.job,
                placement=placement,
                unbound=unbound,
                running=running,
                terminating=terminating,
                progress=job.progress,
                started_at_seconds=job.result.started_at,
                last_resize_at_seconds=job.last_resize,
                resizes=job.result.resizes,
                largest_run_size=job.largest_run,
                pods=views,
            )
        service_pods: list[PodView] = []
        for pods in self._services.values():
            for pod in pods:
                _add(requested, pod.requests)
                if pod.phase is not Phase.TERMINATING:
                    service_pods.append(_view_of(pod))
        used = [
            {key: total - free.get(key, 0) for key, total in machine.allocatable.items()}
            for machine, free in zip(self._workload.machines, self._free, strict=True)
        ]
        return ClusterView(
            now_seconds=self._now,
            machines=self._workload.machines,
            jobs=jobs,
            services=self._workload.services,
            service_pods=service_pods,
            used=used,
            requested=requested,
            quotas=self._workload.quotas,
            rules=self._rules,
        )

    def _apply(self, plan: PolicyPlan) -> None:
        self._reserved = plan.reserved
        for name, reason in plan.rejected.items():
            if name in self._active:
                self._active[name].result.rejected = reason
        # First all deletions, so that what they free is there for the others.
        for name, placement in plan.placements.items():
            if name in self._active:
                self._delete_surplus(self._active[name], placement, plan.victims)
        for name, counts in plan.counts.items():
            if name in self._active:
                self._shrink_to(self._active[name], counts)
        for name, placement in plan.placements.items():
            if name in self._active:
                self._create_missing(self._active[name], placement)
        for name, counts in plan.counts.items():
            if name in self._active:
                self._grow_to(self._active[name], counts)

    def _delete_surplus(self, job: _Job, placement: RolePlacement, victims: frozenset[str]) -> None:
        held: dict[tuple[str, int | None], list[_Pod]] = {}
        for pod in job.pods:
            if pod.phase is not Phase.TERMINATING:
                held.setdefault((pod.role, pod.place), []).append(pod)
        for (role, place), pods in held.items():
            wanted = 0 if place is None else placement.get(role, {}).get(place, 0)
            order = sorted(
                pods, key=lambda pod: (pod.name not in victims, pod.phase is Phase.RUNNING, -pod.number)
            )
            for pod in order[: max(0, len(pods) - wanted)]:
                self._delete(pod)

    def _create_missing(self, job: _Job, placement: RolePlacement) -> None:
        groups = {group.role: group for group in job.job.groups}
        # Keep the order of the plan: it is the order of the machines in the placement.
        for role, machines in placement.items():
            for machine, wanted in machines.items():
                there = sum(
                    pod.role == role and pod.place == machine and pod.phase is not Phase.TERMINATING
                    for pod in job.pods
                )
                for _ in range(wanted - there):
                    pod = self._new_pod(job.job.name, role, groups[role].requests, job.job.priority)
                    pod.pinned = machine
                    job.pods.append(pod)

    def _shrink_to(self, job: _Job, counts: Mapping[str, int]) -> None:
        for role, count in counts.items():
            pods = [pod for pod in job.pods if pod.role == role and pod.phase is not Phase.TERMINATING]
            order = sorted(
                pods, key=lambda pod: (pod.machine is not None, pod.phase is Phase.RUNNING, -pod.number)
            )
            for pod in order[: max(0, len(pods) - count)]:
                self._delete(pod)

    def _grow_to(self, job: _Job, counts: Mapping[str, int]) -> None:
        groups = {group.role: group for group in job.job.groups}
        for role, count in counts.items():
            there = sum(pod.role == role and pod.phase is not Phase.TERMINATING for pod in job.pods)
            for _ in range(count - there):
                job.pods.append(self._new_pod(job.job.name, role, groups[role].requests, job.job.priority))

    # State of jobs

    def _update_placements(self) -> None:
        """Tells the work of each job where its instances run now; a change of the wanted placement costs a
        resize.
        """
        for job in self._active.values():
            wanted: dict[int, int] = {}
            running: dict[int, int] = {}
            for pod in job.pods:
                if pod.role != job.elastic.role or pod.place is None:
                    continue
                if pod.phase is not Phase.TERMINATING:
                    wanted[pod.place] = wanted.get(pod.place, 0) + 1
                if pod.phase is Phase.RUNNING:
                    running[pod.place] = running.get(pod.place, 0) + 1
            key = tuple(wanted.items())
            if sorted(key) != sorted(job.wanted):
                if key:
                    job.delay = self._rules.resize_cost
                    if job.last_resize is not None:
                        job.result.resizes += 1
                    job.last_resize = self._now
                job.wanted = key
                job.result.sizes.append((self._now, sum(wanted.values())))
            trains = job.can_train()
            placed = tuple(running.values()) if trains else ()
            if placed != job.placed:
                job.placed = placed
                job.progress.resize(placed)
            if running and job.result.first_instance_at is None:
                job.result.first_instance_at = self._now
            if trains and job.result.started_at is None:
                job.result.started_at = self._now

    def _sample(self) -> None:
        used = jobs_used = 0
        service_running = 0
        resource = self._workload.resource
        for job in self._active.values():
            for pod in job.pods:
                if pod.phase in (Phase.RUNNING, Phase.TERMINATING) and pod.machine is not None:
                    jobs_used += pod.requests.get(resource, 0)
        used = jobs_used
        for pods in self._services.values():
            for pod in pods:
                if pod.phase in (Phase.RUNNING, Phase.TERMINATING) and pod.machine is not None:
                    used += pod.requests.get(resource, 0)
                    service_running += pod.phase is Phase.RUNNING
        running = sum(bool(job.placed) for job in self._active.values())
        sample = Sample(
            at=self._now,
            utilisation=used / self._total if self._total else 0.0,
            job_utilisation=jobs_used / self._total if self._total else 0.0,
            running_jobs=running,
            waiting_jobs=len(self._active) - running,
            service_running=service_running,
            service_target=sum(self._target(service) for service in self._workload.services),
            jain=jain_index(sum(job.placed) / job.job.weight for job in self._active.values()),
        )
        if self._samples and self._samples[-1].at == sample.at:
            self._samples[-1] = sample
        else:
            self._samples.append(sample)

    def _finish(self, horizon: float) -> RunResult:
        for job in self._active.values():
            self._settle(job)
        ends = [result.completed_at for result in self._results if result.completed_at is not None]
        end = self._workload.horizon if self._workload.horizon is not None else max(ends, default=self._now)
        order = {job.name: number for number, job in enumerate(self._arrivals)}
        for late in self._arrivals[self._coming :]:
            self._results.append(
                JobResult(name=late.name, submitted_at=late.submitted_at_seconds, requested=late.requested)
            )
        return RunResult(
            policy=self._policy.name,
            workload=self._workload.name,
            resource=self._workload.resource,
            end=max(end, 1.0),
            jobs=sorted(self._results, key=lambda result: order[result.name]),
            samples=[sample for sample in self._samples if sample.at < max(end, 1.0)],
            plan_seconds=self._plan_seconds,
        )


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for key, value in more.items():
        total[key] = total.get(key, 0) + value


def _view_of(pod: _Pod) -> PodView:
    return PodView(
        name=pod.name,
        owner=pod.owner,
        role=pod.role,
        machine=pod.place,
        is_running=pod.phase is Phase.RUNNING,
        is_service=pod.is_service,
        priority=pod.priority,
        requests=pod.requests,
    )
