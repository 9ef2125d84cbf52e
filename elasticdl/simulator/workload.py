"""A workload: machines, jobs that arrive over time, services that come and go, and the rules of the clock.

Everything that a simulation depends on is in a `Workload`, so that the same workload, policy and seed give
the same result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elasticdl.errors import UserError
from elasticdl.scheduling.cluster import Machine, Quota
from elasticdl.scheduling.demand import RoleGroup
from elasticdl.scheduling.requirements import PODS, UNLIMITED_PODS
from elasticdl.simulator.work import Work

CPU = "cpu"
MEMORY = "memory"
GPU = "nvidia.com/gpu"
GIB = 1024**3
MOST_MACHINES = 100_000
_GROUP = re.compile(r"^(\d+)x(\d+)gpu$|^(\d+)x(\d+)cpu(?:(\d+)gi)?$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class WorkloadJob:
    """A job of a workload.

    requested: the size of the elastic group that its user would ask a scheduler of fixed sizes for.
    initial: where its instances run already when the simulation begins, per role and name of a machine.
    """

    name: str
    groups: tuple[RoleGroup, ...]
    work: Work
    submitted_at_seconds: float = 0.0
    requested: int = 1
    priority: int = 0
    weight: float = 1.0
    namespace: str = "default"
    initial: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    largest_run_size: int = 0

    @property
    def elastic(self) -> RoleGroup:
        for group in self.groups:
            if group.maximum > group.minimum:
                return group
        for group in self.groups:
            if group.role == "worker":
                return group
        return self.groups[-1]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Service:
    """Pods of someone else. `targets`: from which second on how many replicas are wanted, in order of time."""

    name: str
    requests: Mapping[str, int]
    targets: tuple[tuple[float, int], ...]
    priority: int = 1000


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The clock and its delays, in seconds.

    interval: between two plans. reacts: whether a policy is also asked when a job or a pod comes or goes,
    `reaction` later. resize_cost: how long a job stops when its placement changes, its first start
    included. pod_start, pod_stop: from binding to running, and from deletion to gone; `start_jitter` more
    at random. scheduler_backoff: the longest pause before the cluster's scheduler tries an unschedulable
    pod again; it doubles from one second. 0 means that every freed machine makes it try at once, as
    schedulers do since Kubernetes 1.10.
    """

    interval: float = 60.0
    reacts: bool = False
    reaction: float = 1.0
    resize_cost: float = 30.0
    pod_start: float = 0.0
    start_jitter: float = 0.0
    pod_stop: float = 0.0
    scheduler_backoff: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """`horizon`: the second at which the simulation ends whatever is still running (None: when all jobs are
    done).
    """

    name: str
    machines: tuple[Machine, ...]
    jobs: tuple[WorkloadJob, ...]
    services: tuple[Service, ...] = ()
    quotas: tuple[Quota, ...] = ()
    rules: Rules = field(default_factory=Rules)
    horizon: float | None = None
    # The share of this resource that is in use is the utilisation.
    resource: str = CPU

    def with_rules(self, *, interval: float | None = None, resize_cost: float | None = None) -> Workload:
        rules = self.rules
        if interval is not None:
            rules = replace(rules, interval=interval)
        if resize_cost is not None:
            rules = replace(rules, resize_cost=resize_cost)
        return replace(self, rules=rules)

    def with_load(self, load: float) -> Workload:
        """Returns the workload with arrival times divided by `load`: 2.0 brings the same jobs in half the
        time.
        """
        jobs = tuple(
            replace(job, submitted_at_seconds=float(int(job.submitted_at_seconds / load)))
            for job in self.jobs
        )
        return replace(self, jobs=jobs)

    def with_requested_pods(self) -> Workload:
        """Returns the workload with pods as one more resource that each instance requests one of, if any machine has a
        limit of them.
        """
        if not any(PODS in machine.allocatable for machine in self.machines):
            return self
        limited = {PODS: UNLIMITED_PODS}
        one = {PODS: 1}
        return replace(
            self,
            machines=tuple(
                replace(machine, allocatable={**limited, **machine.allocatable}) for machine in self.machines
            ),
            jobs=tuple(
                replace(
                    job,
                    groups=tuple(replace(group, requests={**group.requests, **one}) for group in job.groups),
                )
                for job in self.jobs
            ),
            services=tuple(
                replace(service, requests={**service.requests, **one}) for service in self.services
            ),
        )

    def with_machines(self, machines: tuple[Machine, ...]) -> Workload:
        return replace(self, machines=machines)


def parse_machines(text: str) -> tuple[Machine, ...]:
    """Reads machines as `16x4gpu` (16 machines of 4 GPUs) or `10x12cpu64Gi`; several are joined by commas."""
    machines: list[Machine] = []
    for part in text.split(","):
        match = _GROUP.match(part.strip())
        if match is None:
            raise UserError(
                f"--nodes: {part.strip()!r} describes no machines.",
                hint="Write 16x4gpu for 16 machines of 4 GPUs, 10x12cpu64Gi for 10 machines of 12 CPUs and 64 GiB; "
                "join several with commas.",
            )
        digits = match[1] or match[3]
        if len(digits) > len(str(MOST_MACHINES)) or len(machines) + int(digits) > MOST_MACHINES:
            raise UserError(f"--nodes: {digits[:20]} machines are too many; the most are {MOST_MACHINES:,}.")
        count = int(digits)
        resources: dict[str, int] = {}
        if match[1]:
            resources[GPU] = int(match[2])
        else:
            resources[CPU] = int(match[4]) * 1000
            # Without a figure memory does not matter.
            resources[MEMORY] = int(match[5]) * GIB if match[5] else 1024 * GIB
        kind = len({machine.name.partition("-")[0] for machine in machines})
        letter = chr(ord("a") + kind % 26)
        machines += [Machine(name=f"{letter}-{number:04d}", allocatable=resources) for number in range(count)]
    if not machines or all(not any(machine.allocatable.values()) for machine in machines):
        raise UserError(f"--nodes: {text!r} is an empty cluster.", hint="At least one machine is needed.")
    return tuple(machines)
