"""Rules, dashboards and metrics for Prometheus, checked by its own tool; alerts fire when they should.

`make e2e-programs` installs promtool (Debian's package prometheus).
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.controller.serving.metrics import ControllerMetrics
from elasticdl.dashboard.job_metrics import exposition_of, job_metrics
from elasticdl.dashboard.prometheus_text import Exposition
from tools.reference.metrics import SAMPLE

MANIFESTS = files("elasticdl") / "manifests"
# Series over time, and the alerts after so many minutes.
CASES: list[tuple[str, dict[str, str], int, list[str]]] = [
    (
        "no leader",
        {
            'elasticdl_controller_is_leader{pod="a"}': "0x10",
            'elasticdl_controller_is_leader{pod="b"}': "0x10",
        },
        5,
        ["ElasticDLControllerHasNoLeader"],
    ),
    (
        "one of two leads",
        {
            'elasticdl_controller_is_leader{pod="a"}': "0x10",
            'elasticdl_controller_is_leader{pod="b"}': "1x10",
        },
        5,
        [],
    ),
    (
        "no progress",
        {
            'elasticdl_job_info{job="a", phase="training"}': "1x30",
            'elasticdl_samples_per_second{job="a"}': "0x30",
        },
        20,
        ["ElasticDLJobMakesNoProgress"],
    ),
    (
        "an evaluation is progress of another kind",
        {
            'elasticdl_job_info{job="a", phase="evaluating"}': "1x30",
            'elasticdl_samples_per_second{job="a"}': "0x30",
        },
        20,
        [],
    ),
    (
        "all workers are missing",
        {'elasticdl_nodes_desired{job="a", role="worker"}': "4x30"},
        20,
        ["ElasticDLJobLacksWorkers"],
    ),
    (
        "all workers run",
        {
            'elasticdl_nodes_desired{job="a", role="worker"}': "4x30",
            'elasticdl_nodes{job="a", role="worker", state="running"}': "4x30",
            'elasticdl_nodes{job="a", role="worker", state="failed"}': "2x30",
        },
        20,
        [],
    ),
]


def _promtool(*words: str, given: str = "") -> str:
    done = subprocess.run(["promtool", *words], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _rules() -> dict[str, Any]:
    document = yaml.safe_load((MANIFESTS / "prometheus-rules.yaml").read_text())
    assert document["kind"] == "PrometheusRule"
    rules: dict[str, Any] = document["spec"]
    return rules


def _expressions(name: str) -> list[str]:
    dashboard = json.loads((MANIFESTS / name).read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def _known_metrics() -> set[str]:
    families = ControllerMetrics().registry.collect()
    known = {f"{each.name}{end}" for each in families for end in ("", "_total", "_bucket", "_sum", "_count")}
    return known | set(re.findall(r"^# TYPE (\S+)", job_metrics(SAMPLE), re.MULTILINE))


@pytest.mark.parametrize("name", ["grafana-job.json", "grafana-training-jobs.json"])
def test_dashboards_have_valid_queries_of_metrics_that_exist(name: str, tmp_path: Path) -> None:
    expressions = _expressions(name)
    assert {word for each in expressions for word in re.findall(r"elasticdl_\w+", each)} <= _known_metrics()
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(expressions)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    _promtool("check", "rules", str(file))


def test_rules_are_valid_and_of_metrics_that_exist(tmp_path: Path) -> None:
    rules = _rules()
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    assert "SUCCESS" in _promtool("check", "rules", str(file))
    named = re.findall(
        r"elasticdl_\w+", json.dumps([rule["expr"] for group in rules["groups"] for rule in group["rules"]])
    )
    assert set(named) <= _known_metrics()


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(_rules()))
    alerts = [rule["alert"] for group in _rules()["groups"] for rule in group["rules"]]
    tests = []
    for _, series, minutes, firing in CASES:
        # Other alerts about no leader are of series that a case does not have.
        checked = [name for name in alerts if name in firing or name != "ElasticDLControllerHasNoLeader"]
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [
                    {
                        "eval_time": f"{minutes}m",
                        "alertname": name,
                        **({} if name not in firing else _fires(name)),
                    }
                    for name in checked
                ],
            }
        )
    file = tmp_path / "test.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in _promtool("test", "rules", str(file))


def _fires(name: str) -> dict[str, Any]:
    labels: dict[str, str] = {
        "ElasticDLControllerHasNoLeader": {"severity": "critical"},
        "ElasticDLJobMakesNoProgress": {"severity": "warning", "job": "a", "phase": "training"},
        "ElasticDLJobLacksWorkers": {"severity": "warning", "job": "a"},
    }[name]
    summary = {
        "ElasticDLControllerHasNoLeader": (
            "No controller leads. TrainingJobs keep their sizes, and new ones do not start."
        ),
        "ElasticDLJobMakesNoProgress": "Job a has trained no sample for 15 minutes.",
        "ElasticDLJobLacksWorkers": "Job a lacks 4 workers.",
    }[name]
    return {"exp_alerts": [{"exp_labels": labels, "exp_annotations": {"summary": summary}}]}


def test_metrics_of_several_jobs_are_one_valid_document() -> None:
    out = Exposition()
    for name in ("a", "b"):
        out.add(exposition_of(replace(SAMPLE, job=name), namespace=""))
    # It also prints advice about names, and then ends with 3.
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=out.text(), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    assert "error while linting" not in done.stderr
