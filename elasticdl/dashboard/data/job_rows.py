"""A job in the list of jobs, as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from elasticdl.catalog.job import JobSummary
from elasticdl.dashboard.data.sentences import state_sentence
from elasticdl.jobs.status import RunState

# Points of a sparkline.
_SPARK_POINTS = 40


def row_key(job: str, namespace: str) -> str:
    """Identifies a job among those of this machine and of the cluster. Names have no slashes."""
    return f"{namespace}/{job}"


def job_row(summary: JobSummary) -> dict[str, Any]:
    progress = summary.progress
    status = progress.status
    row: dict[str, Any] = {
        "job": summary.job,
        "namespace": summary.namespace,
        "training_job": summary.training_job_group,
        "place": summary.location,
        "kind": summary.kind,
        "state": str(summary.state or "unreadable"),
        "sentence": state_sentence(summary, status),
        "created": summary.created or None,
        "ended": summary.ended,
        "done": progress.samples_done,
        "total": progress.samples_desired,
        "loss": progress.loss,
        "metrics": dict(progress.metrics),
    }
    if status is not None:
        row["spark"] = sparkline_points([loss for _, loss in status.losses])
        if summary.state is RunState.RUNNING:
            row["rate"] = status.samples_per_second
            row["remaining_seconds"] = status.remaining_seconds
    return row


def sparkline_points(values: Sequence[float]) -> list[float]:
    """Returns at most so many means of neighbours; values that are not finite are left out."""
    finite = [value for value in values if value - value == 0]
    if len(finite) <= _SPARK_POINTS:
        return [_short(value) for value in finite]
    edges = [round(i * len(finite) / _SPARK_POINTS) for i in range(_SPARK_POINTS + 1)]
    parts = [finite[start:end] for start, end in pairwise(edges)]
    return [_short(sum(part) / len(part)) for part in parts]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
