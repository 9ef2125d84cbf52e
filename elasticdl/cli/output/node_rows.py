"""The nodes of a job as rows of a table: one each while they fit, else one for all of a role in the same state.

Nodes that have ended are no rows: a job that runs for days replaces hundreds. They are one sentence.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.catalog.job import NodeUsage
from elasticdl.cli.output.server_table import duration, percent, rate, size
from elasticdl.jobs.status import JobStatus, NodeReport, ServerReport

# Names of ended nodes in the sentence; of more it has only the counts.
_ENDED_NAMES = 3
# Fewer nodes than this are not grouped.
_FEWEST_IN_GROUP = 3
_LONGEST_OUTPUT = 200
_FAILURES = ("killed", "error", "out of memory", "cannot start")
_PLURALS = {"worker": "workers", "ps": "ps", "chief": "chiefs", "evaluator": "evaluators"}


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """`cells`: texts by the title of their column."""

    name: str
    state: str
    cells: Mapping[str, str] = field(default_factory=dict)


def node_state(node: NodeReport) -> str:
    """Returns the state of a node in words."""
    if _has_ended(node):
        ended = f"ended: {node.reason}" if node.reason else "ended"
        return f"{ended} ({node.message})" if node.reason == "stopped" and node.message else ended
    if node.phase == "pending":
        return f"waits: {node.message}" if node.message else "starting"
    if node.is_draining:
        return "leaving"
    if node.unresponsive_since_seconds:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(node.unresponsive_since_seconds))
        return f"{_unresponsive(node)} since {moment}"
    return "working" if node.has_joined else "starting"


def last_output(node: NodeReport) -> str:
    """Returns what a node that failed wrote last: of a program, the error of its traceback."""
    if not _has_ended(node) or node.reason != "error":
        return ""
    return node.message.partition("last output: ")[2][:_LONGEST_OUTPUT]


def state_style(state: str) -> str:
    """Returns the style of a state on a terminal."""
    if state == "working":
        return "green"
    return "red" if state.startswith("ended") and any(word in state for word in _FAILURES) else "yellow"


def node_rows(
    status: JobStatus, usage: Mapping[str, NodeUsage], *, figures: bool, most_rows: int
) -> list[NodeRow]:
    """Returns rows for the nodes that have not ended. `figures`: with those of parameter servers.

    More than `most_rows` nodes are grouped by role and state.
    """
    nodes = [node for node in status.nodes if not _has_ended(node)]
    servers = {server.name: server for server in status.servers} if figures else {}
    if len(nodes) <= most_rows:
        return [_row([node], usage, servers) for node in nodes]
    groups: dict[tuple[str, str], list[NodeReport]] = {}
    for node in nodes:
        groups.setdefault((node.role, _kind_of_state(node)), []).append(node)
    rows = []
    for members in groups.values():
        parts = [members] if len(members) >= _FEWEST_IN_GROUP else [[node] for node in members]
        rows += [_row(part, usage, servers) for part in parts]
    return rows


def ended_nodes(status: JobStatus) -> str:
    """Returns a sentence about the nodes that have ended, the newest first. Empty if there are none."""
    ended = [node for node in reversed(status.nodes) if _has_ended(node)]
    if not ended:
        return ""
    if len(ended) <= _ENDED_NAMES:
        return f"ended: {', '.join(f'{node.name} ({_reason(node)})' for node in ended)}"
    reasons = Counter(node.reason or "ended" for node in ended)
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"ended: {len(ended)} ({counts}), the last {ended[0].name} ({_reason(ended[0])})"


def has_failures(status: JobStatus) -> bool:
    return any(_has_ended(node) and node.reason in _FAILURES for node in status.nodes)


def used_in_total(usage: Mapping[str, NodeUsage]) -> str:
    """Returns what all nodes use together. Empty if nothing is known."""
    parts = []
    if (cpu := _sum(one.cpu_cores for one in usage.values())) is not None:
        parts.append(f"{cpu:.1f} cores")
    if (memory := _sum(one.memory_bytes for one in usage.values())) is not None:
        parts.append(f"{size(memory)} memory")
    if (gpu := _sum(one.gpu_memory_bytes for one in usage.values())) is not None:
        busiest = max(one.gpu_utilization or 0.0 for one in usage.values())
        parts.append(f"GPU {percent(busiest)}, {size(gpu)}")
    return ", ".join(parts)


def usage_cells(used: Iterable[NodeUsage]) -> dict[str, str]:
    """Returns the texts of the use of some nodes together, by column. What is not known is left out."""
    nodes = list(used)
    cells = {}
    if (cpu := _sum(one.cpu_cores for one in nodes)) is not None:
        cells["cpu"] = f"{100 * cpu:.0f}%"
    if (memory := _sum(one.memory_bytes for one in nodes)) is not None:
        cells["memory"] = size(memory)
    if (gpu := _sum(one.gpu_memory_bytes for one in nodes)) is not None:
        cells["gpu"] = f"{100 * max(one.gpu_utilization or 0.0 for one in nodes):.0f}%"
        cells["gpu memory"] = size(gpu)
    return cells


def _row(
    nodes: Sequence[NodeReport], usage: Mapping[str, NodeUsage], servers: Mapping[str, ServerReport]
) -> NodeRow:
    first = nodes[0]
    is_group = len(nodes) > 1
    cells = usage_cells(usage[node.name] for node in nodes if node.name in usage)
    if (speed := _sum(node.samples_per_second for node in nodes)) is not None:
        cells["samples/s"] = f"{speed:,.0f}"
    if first.role in ("worker", "chief"):
        cells["shards"] = str(sum(node.leased_shards for node in nodes))
    return NodeRow(
        name=f"{len(nodes)} {_PLURALS.get(first.role, first.role)}" if is_group else first.name,
        state=_kind_of_state(first) if is_group else node_state(first),
        cells={**cells, **_server_cells([servers[node.name] for node in nodes if node.name in servers])},
    )


def _server_cells(servers: Sequence[ServerReport]) -> dict[str, str]:
    """Sums of counts and rates; of the times the longest."""
    if not servers:
        return {}

    def longest(of: Callable[[ServerReport], float | None]) -> str:
        return duration(max((value for one in servers if (value := of(one)) is not None), default=None))

    return {
        "rows": f"{sum(one.rows for one in servers):,}",
        "pushes/s": rate(_sum(one.push.per_second for one in servers)),
        "pull p95": longest(lambda one: one.pull.p95_seconds),
        "push p95": longest(lambda one: one.push.p95_seconds),
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _has_ended(node: NodeReport) -> bool:
    if node.phase == "running":
        # A node that drains still runs, so that its progress can be asked for.
        return node.is_draining and bool(node.reason)
    return node.phase != "pending"


def _kind_of_state(node: NodeReport) -> str:
    """Returns the state that nodes shown together have in common: without the time, which differs."""
    if node.phase == "running" and node.unresponsive_since_seconds and not node.is_draining:
        return _unresponsive(node)
    return node_state(node)


def _unresponsive(node: NodeReport) -> str:
    return "unresponsive" if node.has_joined else "starting, unresponsive"


def _reason(node: NodeReport) -> str:
    return node_state(node).removeprefix("ended: ")
