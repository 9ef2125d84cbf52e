"""Parameters of the planner, each with its reason. The defaults are those of the published figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elasticdl.scheduling.errors import SchedulingInputError


@dataclass(frozen=True, kw_only=True)
class PlannerSettings:
    """
    max_load_desired: jobs grow beyond their minimum only while the cluster's load stays at or below this share.
        Load above it never shrinks a job, so that the target cannot oscillate.
    horizon_seconds: how long an allocation is expected to last. Gains beyond it do not count, because jobs come and
        go: with ten minutes a resize of 30 s must speed a job up by about 5 %.
    unknown_work_seconds: work left, in seconds at the smallest size, of a job that has shown nothing yet.
    hysteresis: by how much the gain must exceed the cost of the resizes, as a share: measurements are noisy.
    preempt: whether jobs of lower priority may stop entirely when shrinking is not enough.
    """

    max_load_desired: float = 1.0
    horizon_seconds: float = 600.0
    unknown_work_seconds: float = 1200.0
    hysteresis: float = 0.3
    preempt: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.max_load_desired <= 1:
            raise SchedulingInputError(
                f"max_load_desired is {self.max_load_desired}; use a share above 0 and at most 1"
            )
        for name in ("horizon_seconds", "unknown_work_seconds", "hysteresis"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SchedulingInputError(f"{name} is {value}; use a number of at least zero")
