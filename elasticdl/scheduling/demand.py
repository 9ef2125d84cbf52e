"""Input of the planner: what a job asks for and what is known of its speed.

A job is a set of role groups (master, parameter servers, workers). Exactly one of them may be elastic: it has a
maximum above its minimum, and its count is what the planner calls the *size* of the job. All other groups run at
their minimum.

Failure modes: contradictions (minimum above maximum, negative counts, two elastic groups) raise
`SchedulingInputError`. Measurements are noisy by nature: `usable_observations` drops those that are zero, negative or
non-finite, and averages those that contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.quantities import request_text
from elasticdl.scheduling.requirements import Resources, Toleration, check_resources


@dataclass(frozen=True, kw_only=True)
class RoleGroup:
    role: str
    minimum: int
    maximum: int
    requests: Resources
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()

    def __post_init__(self) -> None:
        owner = f"role group {self.role!r}"
        if not self.role:
            raise SchedulingInputError("a role group has an empty role")
        for name, count in (("minimum", self.minimum), ("maximum", self.maximum)):
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise SchedulingInputError(f"{owner}: {name} is {count!r}; use a non-negative integer")
        if self.minimum > self.maximum:
            raise SchedulingInputError(f"{owner}: minimum {self.minimum} exceeds maximum {self.maximum}")
        check_resources(owner, "requests", self.requests)

    def __str__(self) -> str:
        """Describes one instance: what it requests, and which machines it asks for."""
        labels = ", ".join(f"{name}={value}" for name, value in sorted(self.node_selector.items()))
        return (
            f"{self.role} of {request_text(self.requests)}{f' on machines with {labels}' if labels else ''}"
        )


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A measured mean step time at one size and placement.

    machines: on how many machines the workers ran; replicas: how many workers; local_batch: samples per worker and
    step. step_seconds: one update; compute_seconds: the part of it that is not synchronisation (None if unknown).
    """

    machines: int
    replicas: int
    local_batch: float
    step_seconds: float
    compute_seconds: float | None = None

    @classmethod
    def from_throughput(
        cls, *, machines: int, replicas: int, samples_per_second: float, local_batch: float = 1.0
    ) -> Observation:
        """Returns the observation of a job that reports only its total throughput."""
        seconds = replicas * local_batch / samples_per_second if samples_per_second > 0 else math.nan
        return cls(machines=machines, replicas=replicas, local_batch=local_batch, step_seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """Total batch sizes that the job may train with; `initial` is the one that its user asked for (B₀)."""

    initial: int
    largest: int
    smallest_local: int = 1
    largest_local: int | None = None

    def __post_init__(self) -> None:
        if self.initial < 1 or self.largest < self.initial or self.smallest_local < 1:
            raise SchedulingInputError(
                f"batch limits: need 1 <= initial <= largest and smallest_local >= 1, got {self}"
            )
        if self.largest_local is not None and self.largest_local < self.smallest_local:
            raise SchedulingInputError(f"batch limits: largest_local is below smallest_local in {self}")


@dataclass(frozen=True, kw_only=True)
class GradientNoise:
    """Squared norm and variance of the gradient at batch size B₀; their ratio is the gradient noise scale."""

    square: float
    variance: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a job.

    epochs_total: what the user asked for (None: unknown); epochs_done: completed so far, fractions are fine;
    work_done: progress so far in updates at the smallest batch size (the unit of goodput), or samples for a
    job of fixed batch; work_total: only where it is really known (a data set's samples × epochs).
    """

    epochs_done: float = 0.0
    epochs_total: float | None = None
    work_done: float = 0.0
    work_total: float | None = None


# The default until the master has measured a value.
DEFAULT_RESIZE_COST_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class JobDemand:
    """A waiting or running job; which of the two is decided by its pods.

    largest_run_size: the largest number of elastic instances that it has run with (0: never ran).
    whole_machines: sizes on one machine and of whole machines are preferred, because the workers synchronise; what
    else is free is used too, rather than left idle. None means: if the elastic group requests an accelerator.
    is_pinned: a user has asked for the maximum of the elastic group: the job grows to it whatever its speed.
    bounded_exploration: refuse sizes beyond twice `largest_run_size` (at first: beyond the minimum). None means: if
    the job has measurements or a choice of batch size. Fair shares of a job without either are no bet on speed.
    """

    name: str
    groups: tuple[RoleGroup, ...]
    namespace: str = "default"
    priority: int = 0
    weight: float = 1.0
    submitted_at_seconds: float = 0.0
    started_at_seconds: float | None = None
    observations: tuple[Observation, ...] = ()
    batch: BatchLimits | None = None
    noise: GradientNoise | None = None
    progress: Progress = Progress()
    resize_cost_seconds: float = DEFAULT_RESIZE_COST_SECONDS
    last_resize_at_seconds: float | None = None
    resizes: int = 0
    largest_run_size: int = 0
    whole_machines: bool | None = None
    bounded_exploration: bool | None = None
    is_pinned: bool = False

    def __post_init__(self) -> None:
        owner = f"job {self.key}"
        if not self.name:
            raise SchedulingInputError("a job has an empty name")
        if not self.groups:
            raise SchedulingInputError(f"{owner}: it has no role groups")
        roles = [group.role for group in self.groups]
        if len(set(roles)) != len(roles):
            raise SchedulingInputError(f"{owner}: a role appears twice in {roles}")
        if sum(group.maximum > group.minimum for group in self.groups) > 1:
            raise SchedulingInputError(
                f"{owner}: more than one role group is elastic; fix the size of all but one (minimum = maximum)"
            )
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise SchedulingInputError(f"{owner}: weight is {self.weight}; use a positive number")
        if not (math.isfinite(self.resize_cost_seconds) and self.resize_cost_seconds >= 0):
            raise SchedulingInputError(
                f"{owner}: resize_cost_seconds is {self.resize_cost_seconds}; use a number of at least zero"
            )
        if not math.isfinite(self.submitted_at_seconds):
            raise SchedulingInputError(f"{owner}: submitted_at_seconds is {self.submitted_at_seconds}")
        if self.largest_run_size < 0:
            raise SchedulingInputError(f"{owner}: largest_run_size is {self.largest_run_size}")

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def elastic_group(self) -> RoleGroup:
        """The group whose count is the job's size: the elastic one, else the workers, else the last."""
        for group in self.groups:
            if group.maximum > group.minimum:
                return group
        for group in self.groups:
            if group.role == "worker":
                return group
        return self.groups[-1]

    @cached_property
    def minimum_text(self) -> str:
        """Describes the requirements of a job's start. Cached: it is part of each decision to wait."""
        return "; ".join(f"{group.minimum} {group}" for group in self.groups if group.minimum)

    @property
    def fixed_groups(self) -> tuple[RoleGroup, ...]:
        elastic = self.elastic_group
        return tuple(group for group in self.groups if group is not elastic)

    @property
    def largest_allowed_size(self) -> int:
        """The maximum, or the exploration bound where that is lower."""
        group = self.elastic_group
        bounded = False if self.is_pinned else self.bounded_exploration
        if bounded is None:
            bounded = bool(self.observations) or self.batch is not None
        if not bounded:
            return group.maximum
        return min(group.maximum, max(group.minimum, 2 * self.largest_run_size, 1))

    @property
    def grows_by_whole_machines(self) -> bool:
        if self.whole_machines is not None:
            return self.whole_machines
        return any("gpu" in name or "/" in name for name in self.elastic_group.requests)


def usable_observations(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """Returns the observations that a model can be fitted to, one per size, placement and batch, sorted.

    Zero, negative and non-finite ones are dropped; contradictory ones become their mean.
    """
    groups: dict[tuple[int, int, float], list[Observation]] = {}
    for seen in observations:
        finite = math.isfinite(seen.step_seconds) and math.isfinite(seen.local_batch)
        if not finite or seen.step_seconds <= 0 or seen.local_batch <= 0:
            continue
        if seen.replicas < 1 or not 1 <= seen.machines <= seen.replicas:
            continue
        groups.setdefault((seen.machines, seen.replicas, seen.local_batch), []).append(seen)
    result: list[Observation] = []
    for (machines, replicas, local_batch), group in sorted(groups.items()):
        compute = [
            seen.compute_seconds
            for seen in group
            if seen.compute_seconds is not None
            and math.isfinite(seen.compute_seconds)
            and 0 < seen.compute_seconds <= seen.step_seconds
        ]
        result.append(
            Observation(
                machines=machines,
                replicas=replicas,
                local_batch=local_batch,
                step_seconds=sum(seen.step_seconds for seen in group) / len(group),
                compute_seconds=sum(compute) / len(compute) if compute else None,
            )
        )
    return tuple(result)
