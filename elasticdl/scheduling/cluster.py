"""Input of the planner: machines, pods, quotas, and the state of a cluster at one moment.

All quantities are integers in the smallest unit (CPU in milli-CPU, memory in bytes, GPUs by count), so that sums are
exact. Pods of our jobs and of everyone else have the same type: both occupy capacity, and an unscheduled pod of
either may need room.

Failure modes: each object validates itself when it is made and raises `SchedulingInputError` with its name in the
message. A machine that reports a negative quantity of a resource is refused; one that reports none of a resource
has zero of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from elasticdl.scheduling.demand import JobDemand
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.requirements import Resources, Taint, Toleration, check_resources


@dataclass(frozen=True, kw_only=True)
class Machine:
    """`allocatable` is what pods may request in total; the pods of all owners count against it. Under "pods" it has how
    many pods the machine takes; without that entry there is no such limit.

    is_cordoned: takes no new pods, and those on it stay. is_draining: about to be removed, and its pods with it.
    is_revocable: may be taken away at any moment (spot, preemptible).
    """

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_ready: bool = True
    is_cordoned: bool = False
    is_draining: bool = False
    is_revocable: bool = False

    @property
    def takes_pods(self) -> bool:
        return self.is_ready and not self.is_cordoned and not self.is_draining

    @property
    def release_rank(self) -> int:
        """A job that shrinks leaves machines of a higher rank first."""
        if self.is_draining:
            return 3
        return 2 if self.is_cordoned else int(self.is_revocable)

    def __post_init__(self) -> None:
        if not self.name:
            raise SchedulingInputError("a machine has an empty name")
        check_resources(f"machine {self.name}", "allocatable", self.allocatable)


class PodPhase(Enum):
    """PENDING and RUNNING pods request resources; a FAILED or SUCCEEDED pod holds nothing."""

    PENDING = "Pending"
    RUNNING = "Running"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of anyone. `machine` None means that it is not bound yet.

    `job` and `role` are set for instances of our jobs: the job's name in the same namespace, and its role group.
    """

    name: str
    namespace: str = "default"
    requests: Resources = field(default_factory=dict)
    machine: str | None = None
    priority: int = 0
    job: str | None = None
    role: str | None = None
    phase: PodPhase = PodPhase.RUNNING
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise SchedulingInputError("a pod has an empty name")
        check_resources(f"pod {self.key}", "requests", self.requests)
        if self.job is not None and self.role is None:
            raise SchedulingInputError(f"pod {self.key}: it belongs to job {self.job} but has no role")

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def job_key(self) -> str | None:
        return None if self.job is None else f"{self.namespace}/{self.job}"

    @property
    def occupies_resources(self) -> bool:
        return self.phase in (PodPhase.PENDING, PodPhase.RUNNING)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The limits of one namespace for each resource.

    `guaranteed`: theirs whenever they ask; others may borrow what they leave idle and give it back when asked.
    `limit`: the ceiling with borrowing; a resource without an entry has no ceiling.
    """

    namespace: str
    guaranteed: Resources = field(default_factory=dict)
    limit: Resources = field(default_factory=dict)

    def __post_init__(self) -> None:
        owner = f"quota of namespace {self.namespace}"
        check_resources(owner, "guaranteed", self.guaranteed)
        check_resources(owner, "limit", self.limit)
        for name, ceiling in self.limit.items():
            if self.guaranteed.get(name, 0) > ceiling:
                raise SchedulingInputError(
                    f"{owner}: guaranteed[{name!r}] = {self.guaranteed[name]} exceeds limit[{name!r}] = {ceiling}"
                )


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """Everything that a plan depends on. Sequences may come in any order; the plan does not depend on it."""

    now_seconds: float
    machines: tuple[Machine, ...]
    pods: tuple[Pod, ...] = ()
    jobs: tuple[JobDemand, ...] = ()
    quotas: tuple[Quota, ...] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.now_seconds):
            raise SchedulingInputError(
                f"cluster state: now_seconds is {self.now_seconds}; use a finite number"
            )
        for kind, names in (
            ("machine", [machine.name for machine in self.machines]),
            ("pod", [pod.key for pod in self.pods]),
            ("job", [job.key for job in self.jobs]),
            ("quota of namespace", [quota.namespace for quota in self.quotas]),
        ):
            if len(set(names)) != len(names):
                seen: set[str] = set()
                twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
                raise SchedulingInputError(f"cluster state: {kind} {twice} is listed twice")


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes since the state that a planner has seen last.

    machines, pods, jobs: new ones, and new versions of known ones. removed_*: names of machines, keys of pods and jobs.
    """

    now_seconds: float
    machines: tuple[Machine, ...] = ()
    removed_machines: tuple[str, ...] = ()
    pods: tuple[Pod, ...] = ()
    removed_pods: tuple[str, ...] = ()
    jobs: tuple[JobDemand, ...] = ()
    removed_jobs: tuple[str, ...] = ()
