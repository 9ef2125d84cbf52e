"""Metrics as Prometheus reads them, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from prometheus_client.parser import text_string_to_metric_families

from elasticdl.controller.serving.metrics import ControllerMetrics
from elasticdl.jobs.training_job.status import TrainingJobPhase
from tests.controller.builders import NOW, FakeCluster, training_job


def samples(metrics: ControllerMetrics) -> dict[tuple[str, ...], float]:
    """Values by name and values of labels."""
    text = metrics.route(b"").body.decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_resources_are_in_base_units() -> None:
    cluster = FakeCluster(machines=2, cpu="4", memory="8Gi")
    cluster.run(training_job(high=2))
    metrics = ControllerMetrics()
    metrics.set_cluster(cluster.engine.resources())
    found = samples(metrics)
    assert found["elasticdl_cluster_allocatable", "cpu", "core"] == 8.0
    assert found["elasticdl_cluster_requested", "cpu", "core"] == 2.5
    assert found["elasticdl_cluster_utilization_ratio", "cpu"] == 2.5 / 8
    assert found["elasticdl_cluster_allocatable", "memory", "byte"] == 16 * 2**30
    assert found["elasticdl_cluster_allocatable", "pods", "integer"] == 220
    assert found["elasticdl_cluster_requested", "pods", "integer"] == 3
    assert found["elasticdl_cluster_nodes",] == 2


def test_phases_without_jobs_are_zero() -> None:
    cluster = FakeCluster()
    cluster.show(training_job("one"), training_job("two", namespace="other"))
    metrics = ControllerMetrics()
    waited = cluster.engine.longest_waiting_seconds(NOW + 60)
    metrics.set_jobs(cluster.engine.phases(), longest_waiting_seconds=waited)
    found = samples(metrics)
    assert found["elasticdl_training_jobs", "Pending"] == 2
    assert found["elasticdl_training_jobs", "Failed"] == 0
    assert {("elasticdl_training_jobs", phase.value) for phase in TrainingJobPhase} <= found.keys()
    assert found["elasticdl_training_jobs_longest_waiting_seconds",] == 60.0


def test_started_job_waits_no_longer() -> None:
    cluster = FakeCluster()
    cluster.run(training_job())
    assert cluster.engine.longest_waiting_seconds(NOW + 60) == 0.0


def test_events_are_counted() -> None:
    metrics = ControllerMetrics()
    metrics.add_decision("Grow")
    metrics.add_decision("Grow")
    metrics.add_failure("StartJob")
    metrics.add_start(7.0)
    metrics.add_step(0.01)
    metrics.set_leader(True)
    metrics.set_queue_depth(3)
    found = samples(metrics)
    assert found["elasticdl_controller_decisions_total", "Grow"] == 2
    assert found["elasticdl_controller_failed_actions_total", "StartJob"] == 1
    assert found["elasticdl_training_job_waiting_seconds_sum",] == 7.0
    assert found["elasticdl_training_job_waiting_seconds_bucket", "15.0"] == 1
    assert found["elasticdl_controller_planning_seconds_count",] == 1
    assert found["elasticdl_controller_is_leader",] == 1
    assert found["elasticdl_controller_queue_depth",] == 3


def test_dashboard_asks_for_metrics_that_are_there() -> None:
    metrics = ControllerMetrics()
    names = {
        f"{family.name}{ending}"
        for family in metrics.registry.collect()
        for ending in ("", "_total", "_bucket", "_sum", "_count")
    }
    dashboard = json.loads((files("elasticdl") / "manifests/grafana-training-jobs.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"elasticdl_\w+", target["expr"])
    }
    assert asked
    assert asked <= names
