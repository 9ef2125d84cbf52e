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
    work_left_exponent: a in the weight (hours left)^(-a); 0 ignores work left, larger values favour short jobs.
    hysteresis: by how much a change must beat the current allocation, as a share.
    preempt: whether jobs of lower priority may stop entirely when shrinking is not enough.
    """

    max_load_desired: float = 1.0
    work_left_exponent: float = 0.4
    hysteresis: float = 0.2
    preempt: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.max_load_desired <= 1:
            raise SchedulingInputError(
                f"max_load_desired is {self.max_load_desired}; use a share above 0 and at most 1"
            )
        for name in ("work_left_exponent", "hysteresis"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SchedulingInputError(f"{name} is {value}; use a number of at least zero")
