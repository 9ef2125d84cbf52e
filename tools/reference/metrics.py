"""docs/reference/metrics.md: the fields of a job's status, and the metrics for Prometheus."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from elasticdl.controller.serving.metrics import ControllerMetrics
from elasticdl.dashboard.job_metrics import job_metrics
from elasticdl.jobs import status
from elasticdl.jobs.json_codec import json_key
from elasticdl.jobs.status import (
    CallReport,
    Evaluation,
    HotId,
    JobStatus,
    NodeReport,
    RunState,
    ServerReport,
    Staleness,
    TableReport,
)
from tools.reference.markdown import code, opening, table
from tools.reference.source_comments import field_comments

_TEXT = """\
`elasticdl jobs status JOB --json` prints the status as JSON; `JobHandle.status()` returns it in Python.
`elasticdl jobs metrics JOB` prints the metrics of a job for Prometheus, and with `--port` serves them. The controller
serves its own under `/metrics` (`--http_port`). `elasticdl/manifests/` has dashboards for Grafana and rules for
alerts."""

_REPORTS = (
    status.JobStatus,
    status.NodeReport,
    status.Evaluation,
    status.BucketReport,
    status.ServerReport,
    status.CallReport,
    status.Staleness,
    status.TableReport,
    status.HotId,
    status.DesiredResult,
)


def page() -> str:
    lines = opening(
        "Status and metrics", "elasticdl/jobs/status.py and elasticdl/dashboard/job_metrics.py", _TEXT
    )
    lines += ["## Metrics of a job", "", "All have the label `job`.", ""]
    lines += table(["metric", "type", "labels", "meaning"], _job_rows())
    lines += ["## Metrics of the controller", ""]
    lines += table(["metric", "type", "labels", "meaning"], _controller_rows())
    lines += [
        "## Fields of a status",
        "",
        "Attributes in Python have the same names, unless the second column has one.",
    ]
    lines += ["", f"`state` is one of {', '.join(code(each.value) for each in RunState)}.", ""]
    for report in _REPORTS:
        lines += [f"### {report.__name__}", "", _first_paragraph(report), ""]
        lines += table(["key", "attribute", "type", "meaning"], _status_rows(report))
    return "\n".join(lines)


def _first_paragraph(report: type) -> str:
    return " ".join((report.__doc__ or "").partition("\n\n")[0].split())


def _status_rows(report: type) -> Iterator[list[str]]:
    comments = field_comments(report)
    for field in dataclasses.fields(report):
        key = json_key(field)
        kind = str(field.type).replace("Mapping[", "map[").replace("tuple[", "list[").replace(", ...]", "]")
        yield [
            code(key),
            code(field.name) if key != field.name else "",
            code(kind),
            comments.get(field.name, ""),
        ]


def _job_rows() -> Iterator[list[str]]:
    text = job_metrics(SAMPLE)
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        found = re.findall(rf"^{name}\{{([^}}]*)\}}", text, re.MULTILINE)
        labels = {label for line in found for label in re.findall(r"(\w+)=\"", line)} - {"job"}
        yield [code(name), kind, ", ".join(code(each) for each in sorted(labels)), helps[name]]


def _controller_rows() -> Iterator[list[str]]:
    registry = ControllerMetrics().registry
    own = [each for each in registry._collector_to_names if hasattr(each, "_labelnames")]
    for metric in own:
        [family] = metric.collect()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(code(each) for each in getattr(metric, "_labelnames", ()))
        yield [code(name), family.type, labels, family.documentation]


# A status in which every field that becomes a metric is known.
_CALL = CallReport(count=1, per_second=1.0, p50_seconds=0.1, p95_seconds=0.1, p99_seconds=0.1)
SAMPLE = JobStatus(
    job="job",
    state=RunState.RUNNING,
    loss=1.0,
    evaluations=(Evaluation(step=1, metrics={"accuracy": 1.0}),),
    nodes=(NodeReport(name="worker-0", role="worker", phase="running"),),
    desired_nodes={"worker": 1},
    servers=(
        ServerReport(
            name="ps-0",
            calls={"push": _CALL},
            rows_pulled_per_second=1.0,
            rows_pushed_per_second=1.0,
            hit_ratio=1.0,
            staleness=Staleness(mean=1.0, max=1),
            tables=(TableReport(name="clicks", hit_ratio=1.0, hot_ids=(HotId(id=1, share=0.5),)),),
        ),
    ),
)
