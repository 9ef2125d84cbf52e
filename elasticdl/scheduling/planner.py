"""The planner: a cluster's state in, a plan out. Under construction: the signatures are final."""

from __future__ import annotations

from elasticdl.scheduling.cluster import ClusterState
from elasticdl.scheduling.decisions import Plan
from elasticdl.scheduling.settings import PlannerSettings


class Planner:
    """Plans repeatedly and keeps fitted models and arrays between calls; the result depends only on the state."""

    def __init__(self, settings: PlannerSettings | None = None) -> None:
        self.settings = settings or PlannerSettings()

    def plan(self, state: ClusterState) -> Plan:
        raise NotImplementedError


def plan(state: ClusterState, settings: PlannerSettings | None = None) -> Plan:
    """Returns the plan for one state of a cluster."""
    return Planner(settings).plan(state)
