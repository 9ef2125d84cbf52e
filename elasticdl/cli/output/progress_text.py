"""The status of a job in texts: the same in the live display, in plain lines and in `elasticdl jobs status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticdl.cli.output.node_rows import node_state
from elasticdl.jobs.status import JobStatus, RunState

# Names of nodes in a sentence.
_NAMES = 4

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(points: Sequence[tuple[int, float]], width: int = 30) -> str:
    """The course of the loss in one line."""
    values = [value for _, value in points if value == value and abs(value) != float("inf")]
    if len(values) < 2:
        return ""
    every = max(1, len(values) // width)
    means = [sum(values[i : i + every]) / len(values[i : i + every]) for i in range(0, len(values), every)]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in means)


def last_evaluation(status: JobStatus) -> str:
    newest = status.latest_evaluation
    if newest is None:
        return ""
    # `elasticdl evaluate` takes no step.
    at = f" (step {newest.step:,})" if status.kind == "train" else ""
    return f"{format_metrics(newest.metrics)}{at}"


def omitted_evaluations(status: JobStatus) -> str:
    """Returns a sentence about evaluations that are not listed. Empty if all are."""
    if not status.evaluations_omitted:
        return ""
    return (
        f"{status.evaluations_omitted:,} more evaluations are not listed: the job's record has room for the first, the "
        "newest, and those with the lowest and the highest value of each metric. The log of the master has them all."
    )


def format_metrics(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.5g}" for name, value in metrics.items())


def time_left(status: JobStatus) -> str:
    if status.remaining_seconds is None or status.state is not RunState.RUNNING:
        return ""
    return f"{_clock(int(status.remaining_seconds))} left"


def one_line(status: JobStatus) -> str:
    total, done = status.samples_desired, status.samples_done
    working = sum(1 for node in status.nodes if node.role == "worker" and node_state(node) == "working")
    parts = [status.phase]
    # A job command may do without data of ours.
    if total or status.program != "command":
        parts += [
            f"epoch {min(status.epoch + 1, status.epochs)}/{status.epochs}",
            f"{done:,}/{total:,} samples",
            f"{status.samples_per_second:,.0f}/s",
            f"step {status.step:,}",
        ]
    if status.loss is not None:
        parts.append(f"loss {status.loss:.5f}")
    parts.append(f"{working} of {status.desired_nodes.get('worker', 0)} workers")
    if time_left(status):
        parts.append(time_left(status))
    # A program of the user's may run long before it asks for data.
    if status.phase == "starting" and waiting_for(status):
        parts.append(f"waiting for {waiting_for(status)}")
    return " | ".join(parts)


def without_effect(status: JobStatus) -> str:
    """Returns a sentence about batches with non-finite gradients. Empty if there were none."""
    count = status.non_finite_batches
    if not count:
        return ""
    batches = "1 batch" if count == 1 else f"{count:,} batches"
    return f"{batches} had no effect: the gradients were not finite (--max_bad_gradients)."


def elapsed(status: JobStatus, started: float | None = None) -> str:
    """Returns how long the job has been running. Empty before its master has reported."""
    began = started or status.start_time
    return _clock(max(0, int(status.now - began))) if began and status.now else ""


def waiting_for(status: JobStatus) -> str:
    """Returns what a job that does not work yet waits for. Empty once it works."""
    if status.state not in (RunState.STARTING, RunState.RUNNING):
        return ""
    if not status.has_report:
        return "the master to start"
    states = {node.name: node_state(node) for node in status.nodes}
    works = any(node.role in ("worker", "chief") and states[node.name] == "working" for node in status.nodes)
    if works and status.phase != "starting":
        return ""
    missing = [
        name for name, state in states.items() if not state.startswith(("working", "ended", "leaving"))
    ]
    if missing:
        names = ", ".join(missing[:_NAMES])
        more = f" and {len(missing) - _NAMES} more" if len(missing) > _NAMES else ""
        reason = next((node.message for node in status.nodes if node.name in missing and node.message), "")
        return f"{names}{more} to start{f': {reason}' if reason else ''}"
    if not works:
        return "a worker to be started"
    return "a worker to open the data" if status.program != "command" else ""


def _clock(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
