"""How many random histories a test runs: a few with fixed seeds in CI, many more with `make histories`.

ELASTICDL_SOAK multiplies the number of histories. With it, hypothesis draws other ones in each run. Tests that use this
module have the marker `soak`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SOAK_FACTOR = int(os.environ.get("ELASTICDL_SOAK", "1"))


def seeds(count: int) -> range:
    """For histories that are a function of their seed."""
    return range(count * SOAK_FACTOR)


def histories(count: int, *, steps: int = 50) -> settings:
    """For histories that hypothesis draws; `steps`: of each history of a state machine."""
    return settings(
        max_examples=count * SOAK_FACTOR,
        stateful_step_count=steps,
        deadline=None,
        derandomize=SOAK_FACTOR == 1,
        suppress_health_check=list(HealthCheck),
    )
