"""The interface of a scheduling policy, and what it may see.

A policy is asked at moments that the rules of the workload choose. It sees jobs and pods as a controller
sees them, never the work that is left or the speed of placements that a job has not run in. It returns, per
job, either exact placements or only counts; counts are placed by the scheduler of the cluster, one pod at a
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elasticdl.scheduling.cluster import Machine, Quota
from elasticdl.simulator.work import BatchChooser, WorkProgress
from elasticdl.simulator.workload import Rules, Service, WorkloadJob

# role -> index of the machine -> instances
RolePlacement = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, kw_only=True)
class PodView:
    """A pod that is not terminating. `machine` is where it is bound or pinned."""

    name: str
    owner: str
    role: str
    machine: int | None
    is_running: bool
    is_service: bool
    priority: int
    requests: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A submitted and unfinished job, as a controller sees it."""

    job: WorkloadJob
    # Where its instances are or are about to be, in the order in which they were placed.
    placement: RolePlacement
    # Pods that wait for the scheduler of the cluster, per role.
    unbound: Mapping[str, int]
    running: Mapping[str, int]
    terminating: int
    progress: WorkProgress
    started_at_seconds: float | None
    last_resize_at_seconds: float | None
    resizes: int
    largest_run_size: int
    pods: Sequence[PodView]

    def count(self, role: str) -> int:
        """Returns how many instances the job is meant to have now, placed or not."""
        return sum(self.placement.get(role, {}).values()) + self.unbound.get(role, 0)


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    now_seconds: float
    machines: Sequence[Machine]
    jobs: Mapping[str, JobView]
    services: Sequence[Service]
    service_pods: Sequence[PodView]
    # Requests on each machine, terminating pods included.
    used: Sequence[Mapping[str, int]]
    # Requests of all pods that exist, bound or not.
    requested: Mapping[str, int]
    quotas: Sequence[Quota]
    rules: Rules


@dataclass(frozen=True, kw_only=True)
class PolicyPlan:
    """Jobs that appear in neither mapping stay as they are.

    placements: exact machines for every instance of a job; empty means that the job stops. counts: how many
    instances of each role; pods are placed by the cluster's scheduler. rejected: jobs that can never run,
    with the reason. victims: pods to delete first. reserved: machines for pods of services.
    """

    placements: Mapping[str, RolePlacement] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    victims: frozenset[str] = frozenset()
    reserved: Mapping[str, int] = field(default_factory=dict)


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def interval_seconds(self) -> float | None:
        """Between two plans where the rules leave it open; None for the interval of the rules."""

    @property
    def stop_seconds(self) -> float | None:
        """Returns the seconds from the deletion of an instance until it is gone; None: as in the rules."""

    def sizes(self, job: WorkloadJob) -> tuple[int, int]:
        """Returns the smallest and largest size of the elastic group under this policy."""

    @property
    def chooser(self) -> BatchChooser | None:
        """Returns the chooser of a job's batch size; None: jobs train at the one that the user asked for."""

    def plan(self, view: ClusterView) -> PolicyPlan: ...
