"""The policies that can be compared, by name."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.simulator.policies.edl import EdlPolicy
from elasticdl.simulator.policies.elasticdl import PlannerPolicy
from elasticdl.simulator.policies.fixed import FifoPolicy, StaticPolicy
from elasticdl.simulator.policies.tiresias import TiresiasPolicy
from elasticdl.simulator.policy import Policy

POLICIES: dict[str, Callable[[], Policy]] = {
    "elasticdl": PlannerPolicy,
    "edl": EdlPolicy,
    "fifo": FifoPolicy,
    "static": StaticPolicy,
    "tiresias": TiresiasPolicy,
}


def make_policy(name: str) -> Policy:
    """Returns a new policy; each run needs its own, because policies remember."""
    if name not in POLICIES:
        raise UserError(
            f"There is no policy {name!r}.{did_you_mean(name, POLICIES)}",
            hint=f"Policies: {', '.join(POLICIES)}.",
        )
    return POLICIES[name]()
