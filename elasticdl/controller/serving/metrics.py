"""Prometheus metrics of the controller and of its view of the cluster.

Events (decisions, steps, failures) are counted when they happen; states (jobs, resources) are set by the loop every few
seconds, so that a scrape costs nothing and reads nothing that is being changed.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Collection, Mapping

import prometheus_client as prometheus

from elasticdl.controller.cluster_resources import ClusterResources
from elasticdl.controller.serving.http_server import Response, Route
from elasticdl.jobs.training_job.status import TrainingJobPhase

# From "at once" to a working day.
_WAITING_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 8 * 3600, 24 * 3600)
_PLANNING_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.3, 1, 2, 5, 10, 30)
# Unit and divisor by resource; others are counts.
_UNITS = {"cpu": ("core", 1000), "memory": ("byte", 1)}


class ControllerMetrics:
    """A registry of its own: two controllers in one process do not mix."""

    def __init__(self) -> None:
        self.registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        labels = ("resource", "unit")
        self._allocatable = prometheus.Gauge(
            "elasticdl_cluster_allocatable",
            "Resources that the machines offer to pods.",
            labels,
            registry=registry,
        )
        self._requested = prometheus.Gauge(
            "elasticdl_cluster_requested",
            "Resources that the pods on the machines request.",
            labels,
            registry=registry,
        )
        self._utilization = prometheus.Gauge(
            "elasticdl_cluster_utilization_ratio",
            "Requested part of the offered resources.",
            ("resource",),
            registry=registry,
        )
        self._nodes = prometheus.Gauge(
            "elasticdl_cluster_nodes", "Machines of the cluster.", registry=registry
        )
        self._jobs = prometheus.Gauge(
            "elasticdl_training_jobs", "TrainingJobs by phase.", ("phase",), registry=registry
        )
        self._longest_waiting = prometheus.Gauge(
            "elasticdl_training_jobs_longest_waiting_seconds",
            "Age of the oldest TrainingJob that has never been started.",
            registry=registry,
        )
        self._waiting = prometheus.Histogram(
            "elasticdl_training_job_waiting_seconds",
            "From the creation of a TrainingJob to its start.",
            buckets=_WAITING_BUCKETS,
            registry=registry,
        )
        self._decisions = prometheus.Counter(
            "elasticdl_controller_decisions",
            "Executed decisions of the planner.",
            ("kind",),
            registry=registry,
        )
        self._failures = prometheus.Counter(
            "elasticdl_controller_failed_actions",
            "Actions that the API server refused or did not answer.",
            ("action",),
            registry=registry,
        )
        self._planning = prometheus.Histogram(
            "elasticdl_controller_planning_seconds",
            "Duration of one step: planning for all jobs and reconciling each.",
            buckets=_PLANNING_BUCKETS,
            registry=registry,
        )
        self._queue_depth = prometheus.Gauge(
            "elasticdl_controller_queue_depth",
            "Jobs whose actions are not executed yet.",
            registry=registry,
        )
        self._is_leader = prometheus.Gauge(
            "elasticdl_controller_is_leader",
            "1 for the replica that leads, 0 for the others.",
            registry=registry,
        )

    def set_cluster(self, resources: ClusterResources) -> None:
        self._nodes.set(resources.node_count)
        for name, total in resources.totals.items():
            unit, divisor = _UNITS.get(name, ("integer", 1))
            requested = resources.requests.get(name, 0)
            self._allocatable.labels(name, unit).set(total / divisor)
            self._requested.labels(name, unit).set(requested / divisor)
            self._utilization.labels(name).set(requested / total if total else 0.0)

    def set_jobs(self, phases: Collection[TrainingJobPhase], *, longest_waiting_seconds: float) -> None:
        counts: Mapping[TrainingJobPhase, int] = Counts(phases)
        for phase in TrainingJobPhase:
            self._jobs.labels(phase.value).set(counts.get(phase, 0))
        self._longest_waiting.set(longest_waiting_seconds)

    def set_leader(self, is_leader: bool) -> None:
        self._is_leader.set(int(is_leader))

    def set_queue_depth(self, depth: int) -> None:
        self._queue_depth.set(depth)

    def add_step(self, seconds: float) -> None:
        self._planning.observe(seconds)

    def add_start(self, waited_seconds: float) -> None:
        self._waiting.observe(max(waited_seconds, 0.0))

    def add_decision(self, kind: str) -> None:
        self._decisions.labels(kind).inc()

    def add_failure(self, action: str) -> None:
        self._failures.labels(action).inc()

    def route(self, _: bytes) -> Response:
        body = prometheus.generate_latest(self.registry)
        return Response(body=body, content_type=prometheus.CONTENT_TYPE_LATEST)

    def routes(self) -> dict[str, Route]:
        return {"/metrics": self.route}
