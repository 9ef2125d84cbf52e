"""The state of a job in one sentence, with the reason. Pure."""

from __future__ import annotations

from elasticdl.catalog.job import JobSummary
from elasticdl.jobs.history.entries import NodeState
from elasticdl.jobs.status import JobStatus, NodeReport, RunState

_TRAINERS = ("worker", "chief")
# Names of nodes in a sentence.
_NAMES = 3


def state_sentence(summary: JobSummary, status: JobStatus | None) -> str:
    """`status`: the newest one, None if it is not known."""
    state = summary.state
    if state is None:
        return summary.message
    if state is RunState.INTERRUPTED:
        trouble = status.trouble if status is not None else ""
        return trouble or "The process that ran it is gone. It can be resumed from its newest checkpoint."
    if state is RunState.SUCCEEDED:
        return "Every sample is accounted for, and the audit is exact."
    if state in (RunState.FAILED, RunState.STOPPED):
        message = summary.message or (status.message if status is not None else "")
        return _first_line(message) or f"The job has {state}."
    if status is None or not status.has_report:
        return (status.trouble if status is not None else summary.message) or "The master is starting."
    return _running(status)


def _running(status: JobStatus) -> str:
    if status.trouble:
        return status.trouble
    nodes = {node.name: NodeState.of(node) for node in status.nodes}
    trainers = [node for node in status.nodes if node.role in _TRAINERS]
    desired = sum(status.desired_nodes.get(role, 0) for role in _TRAINERS)
    working = sum(nodes[node.name] is NodeState.WORKING for node in trainers)
    text = _phase(status)
    if desired:
        text += f" with {working} of {desired} workers"
    reasons = [
        reason
        for reason in (
            _named(status, nodes, NodeState.UNRESPONSIVE, "do not respond", "does not respond"),
            _named(status, nodes, NodeState.DRAINING, "are leaving", "is leaving"),
            _named(status, nodes, NodeState.STARTING, "are starting", "is starting"),
            _pending(status, nodes),
        )
        if reason
    ]
    return f"{text}: {'; '.join(reasons)}." if reasons else f"{text}."


def _phase(status: JobStatus) -> str:
    phase = status.phase[:1].upper() + status.phase[1:] if status.phase else "Running"
    if status.phase == "training" and status.epochs > 1:
        return f"{phase}, epoch {min(status.epoch + 1, status.epochs)} of {status.epochs},"
    return phase


def _named(
    status: JobStatus, nodes: dict[str, NodeState], state: NodeState, plural: str, singular: str
) -> str:
    found = [node for node in status.nodes if nodes[node.name] is state]
    return f"{_names(found)} {singular if len(found) == 1 else plural}" if found else ""


def _pending(status: JobStatus, nodes: dict[str, NodeState]) -> str:
    found = [node for node in status.nodes if nodes[node.name] is NodeState.PENDING]
    if not found:
        return ""
    reason = next((node.message for node in found if node.message), "")
    waits = "waits" if len(found) == 1 else "wait"
    return f"{_names(found)} {waits} to start{f' ({_first_line(reason)})' if reason else ''}"


def _names(nodes: list[NodeReport]) -> str:
    names = ", ".join(node.name for node in nodes[:_NAMES])
    more = len(nodes) - _NAMES
    return f"{names} and {more} more" if more > 0 else names


def _first_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[0].strip() if lines else ""
