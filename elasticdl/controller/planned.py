"""The planner's last input, so that the next plan costs only what has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.controller.cluster_view import ClusterView, PlannerChanges
from elasticdl.scheduling.cluster import Changes
from elasticdl.scheduling.demand import JobDemand


@dataclass(frozen=True, kw_only=True)
class Planned:
    """Names of machines and keys of pods; demands by the key of their job."""

    machines: frozenset[str]
    pods: frozenset[str]
    demands: Mapping[str, JobDemand]

    @classmethod
    def of(cls, view: ClusterView, demands: Mapping[str, JobDemand]) -> Planned:
        return cls(machines=frozenset(view.machines), pods=frozenset(view.pods), demands=dict(demands))

    def changes(
        self, changes: PlannerChanges, view: ClusterView, demands: Mapping[str, JobDemand], now: float
    ) -> Changes:
        """Returns the difference between then and now. What came and went in between is left out."""
        return Changes(
            now_seconds=now,
            machines=tuple(view.machines[name] for name in sorted(changes.machines) if name in view.machines),
            removed_machines=tuple(
                name
                for name in sorted(changes.machines)
                if name not in view.machines and name in self.machines
            ),
            pods=tuple(view.pods[key] for key in sorted(changes.pods) if key in view.pods),
            removed_pods=tuple(
                key for key in sorted(changes.pods) if key not in view.pods and key in self.pods
            ),
            jobs=tuple(demand for key, demand in demands.items() if self._is_new(key, demand)),
            removed_jobs=tuple(key for key in self.demands if key not in demands),
        )

    def _is_new(self, key: str, demand: JobDemand) -> bool:
        before = self.demands.get(key)
        return before is not demand and before != demand
