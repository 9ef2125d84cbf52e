"""The page of one job, as sections of JSON: made of its status, its history and its spec. Pure.

Only what was recorded is there. A job without a history, of an older version or on a cluster, has the curves of its
status and no time account.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from elasticdl.catalog.job import JobSummary, NodeUsage
from elasticdl.dashboard.data.history_view import HistoryView
from elasticdl.dashboard.data.sentences import state_sentence
from elasticdl.jobs.audit import AuditRow, render
from elasticdl.jobs.history.entries import NodeState
from elasticdl.jobs.json_codec import encode
from elasticdl.jobs.schema.flag_index import LEAVES
from elasticdl.jobs.spec import JobSpec, to_yaml, without_env_values
from elasticdl.jobs.status import JobStatus, RunState

# Rows of the ledger; a job of a thousand epochs shows the newest.
_MOST_ROWS = 60


def head(
    summary: JobSummary, status: JobStatus, *, logs_location: str, resume_hint: str, allows_actions: bool
) -> dict[str, Any]:
    return {
        "job": summary.job,
        "namespace": summary.namespace,
        "place": summary.location,
        "kind": summary.kind,
        "program": status.program,
        "state": str(summary.state or "unreadable"),
        "is_active": summary.state is not None and summary.state.is_active,
        "sentence": state_sentence(summary, status),
        "phase": status.phase,
        "created": summary.created or None,
        "started": status.start_time or None,
        "ended": summary.ended,
        "message": status.message or summary.message,
        "traceback": status.traceback,
        "remarks": list(status.remarks),
        "generation": status.model_generation,
        "checkpoint": status.checkpoint,
        "output": status.output,
        "tracking": list(status.tracking),
        "logs_location": logs_location,
        "resume_hint": resume_hint,
        "allows_actions": allows_actions,
    }


def progress(status: JobStatus) -> dict[str, Any]:
    is_running = status.state is RunState.RUNNING
    return {
        "done": status.samples_done,
        "total": status.samples_desired,
        "epoch": status.epoch,
        "epochs": status.epochs,
        "step": status.step,
        "rate": status.samples_per_second if is_running else None,
        "remaining_seconds": status.remaining_seconds if is_running else None,
        "loss": status.loss,
        "workers": sum(status.ready_nodes(role) for role in ("worker", "chief")),
        "desired_workers": sum(status.desired_nodes.get(role, 0) for role in ("worker", "chief")),
        "servers": status.ready_nodes("ps"),
        "desired_servers": status.desired_nodes.get("ps", 0),
        "non_finite_batches": status.non_finite_batches,
    }


def curves(status: JobStatus, view: HistoryView) -> dict[str, Any]:
    """The loss by step, as finely as it is known, and the metrics of evaluations."""
    points = dict(status.losses)
    series = view.series()
    points.update(
        {step: loss for step, loss in zip(series["step"], series["loss"], strict=True) if loss is not None}
    )
    steps = sorted(points)
    return {
        "loss": [steps, [points[step] for step in steps]],
        "evaluations": [
            {"step": one.step, "epoch": one.epoch, "metrics": dict(one.metrics)} for one in status.evaluations
        ],
    }


def nodes(status: JobStatus, view: HistoryView) -> list[dict[str, Any]]:
    """Each node with the times of its changes. Without a history, as it is now."""
    found = {node["name"]: dict(node) for node in view.nodes()}
    for node in status.nodes:
        state = NodeState.of(node)
        known = found.setdefault(node.name, {"name": node.name, "role": node.role, "spans": []})
        # The status is newer than the history by some moments.
        known.update(state=str(state), reason=node.reason, message=node.message)
    if status.state.is_final or status.state is RunState.INTERRUPTED:
        for known in found.values():
            if known["state"] != NodeState.ENDED.value:
                known.update(state=NodeState.ENDED.value, reason=known.get("reason") or "the job has ended")
    return sorted(found.values(), key=_node_order)


def node_figures(status: JobStatus, usage: Mapping[str, NodeUsage]) -> dict[str, list[float | None]]:
    """Samples per second, leased shards, cores and bytes of each node that has not ended."""
    figures: dict[str, list[float | None]] = {}
    for node in status.nodes:
        if NodeState.of(node) is NodeState.ENDED or not status.state.is_active:
            continue
        used = usage.get(node.name) or NodeUsage()
        rate = None if node.samples_per_second is None else round(node.samples_per_second, 1)
        cores = None if used.cpu_cores is None else round(used.cpu_cores, 2)
        figures[node.name] = [rate, node.leased_shards, cores, used.memory_bytes]
    return figures


def ledger(status: JobStatus) -> dict[str, Any]:
    rows = status.audit.rows if status.audit is not None else ()
    return {
        "dataset": status.dataset,
        "size": status.dataset_size,
        "done": status.samples_done,
        "total": status.samples_desired,
        "to_do": max(status.samples_desired - status.samples_done, 0),
        "leased_shards": sum(node.leased_shards for node in status.nodes),
        "again": status.samples_again,
        "rows": [_ledger_row(row) for row in rows[-_MOST_ROWS:]],
        "rows_omitted": max(len(rows) - _MOST_ROWS, 0),
    }


def _ledger_row(row: AuditRow) -> dict[str, Any]:
    return {
        "dataset": row.dataset,
        "epoch": row.epoch + 1,
        "epochs": row.epochs,
        "size": row.size,
        "done": row.done,
        "left": row.left,
        "again": row.again,
        "skipped": row.skipped,
    }


def goodput(view: HistoryView) -> dict[str, Any] | None:
    account = view.account
    if account is None:
        return None
    return {
        "ratio": account.goodput,
        "training_seconds": account.training,
        "total_seconds": account.total,
        "lost_seconds": account.lost(),
    }


def servers(status: JobStatus) -> dict[str, Any]:
    return {
        "servers": [encode(server) for server in status.servers],
        "buckets": encode(status.buckets) if status.buckets is not None else None,
    }


def audit(status: JobStatus) -> dict[str, Any] | None:
    if status.audit is None:
        return None
    return {"exact": status.audit.exact, "text": render(status.audit)}


def definition(spec: JobSpec) -> dict[str, str]:
    """The whole job, and the command that starts such a job. Values of environment variables are left out."""
    plain = without_env_values(spec)
    return {"yaml": to_yaml(plain), "command": command_line(plain)}


def command_line(spec: JobSpec) -> str:
    """Returns the command with the flags that differ from their defaults, a line for each."""
    words = [f"elasticdl {spec.kind}"]
    for name, value in spec.values().items():
        leaf = LEAVES[name]
        if value == leaf.default() or name == "kind":
            continue
        words.append(f"--{name}={shlex.quote(leaf.flag.grammar.text(value))}")
    return " \\\n  ".join(words)


_ROLES = {"master": 0, "chief": 1, "worker": 2, "evaluator": 3, "ps": 4}


def _node_order(node: Mapping[str, Any]) -> tuple[int, int, str]:
    name = str(node["name"])
    number = name.rpartition("-")[2]
    return (_ROLES.get(str(node["role"]), 5), int(number) if number.isdigit() else 0, name)
