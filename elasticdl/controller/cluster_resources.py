"""The resources of a cluster's machines, and the requests of the pods on them, as a log line and as metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.controller.cluster_view import ClusterView, total_of
from elasticdl.jobs.sections.resources import GPU
from elasticdl.scheduling.requirements import PODS

_MEGA = 1_000_000
_CPU, _MEMORY = "cpu", "memory"


@dataclass(frozen=True, kw_only=True)
class ClusterResources:
    """CPU in thousandths, memory in bytes, GPUs by count. `idle`: by machine, for those that may take pods."""

    node_count: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    idle: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, view: ClusterView) -> ClusterResources:
        bound = [pod for pod in view.pods.values() if pod.machine in view.machines]
        open_machines = {name: machine for name, machine in view.machines.items() if machine.takes_pods}
        free = {name: dict(machine.allocatable) for name, machine in open_machines.items()}
        for pod in bound:
            left = free.get(pod.machine or "")
            if left is not None:
                for name, amount in (*pod.requests.items(), (PODS, 1)):
                    left[name] = left.get(name, 0) - amount
        return cls(
            node_count=len(view.machines),
            requests={**total_of(pod.requests for pod in bound), PODS: len(bound)},
            limits=total_of(view.limits.get(pod.key, {}) for pod in bound),
            totals=total_of(machine.allocatable for machine in view.machines.values()),
            idle=free,
        )

    def line(self) -> str:
        """Returns the line with the figures that PaddlePaddle EDL's controller logged."""
        parts = [f"NodeCount:{self.node_count}"]
        for label, name, unit in (("GPU", GPU, 1), ("CPU", _CPU, 1), ("Memory", _MEMORY, _MEGA)):
            suffix = {"GPU": "", "CPU": "Milli", "Memory": "Mega"}[label]
            for word, amounts in (("Request", self.requests), ("Limit", self.limits), ("Total", self.totals)):
                parts.append(f"{label}{word}{suffix}:{amounts.get(name, 0) // unit}")
        cpu = self._idle(_CPU, 1)
        memory = self._idle(_MEMORY, _MEGA)
        return f"Cluster resources: {' '.join(parts)} NodesCPUIdleMilli:{{{cpu}}} NodesMemoryFreeMega:{{{memory}}}"

    def _idle(self, name: str, unit: int) -> str:
        return " ".join(
            f"{machine}:{max(free.get(name, 0), 0) // unit}" for machine, free in sorted(self.idle.items())
        )
