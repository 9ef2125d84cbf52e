"""A job's status in little room, however long the job trains.

An object of a cluster holds a megabyte, and each write of it goes to all who watch it, so the record of a job there has
neither every evaluation nor a row for every epoch. What people ask for stays: the first evaluation, the newest ones,
and of every metric the lowest and the highest, as nobody here knows which of them is the better one. Epochs that are
alike share a row (`audit_rows.py`). What was left out is counted, so that readers can say so.
"""

from __future__ import annotations

from typing import Any

from elasticdl.master.ledger.audit_rows import without_rows, written_short
from elasticdl.master.servers.server_metrics import shortened, without_tables

Document = dict[str, Any]

RESULTS_KEPT = 200
# The figures of many servers with many tables would fill the object alone.
_SERVERS_LENGTH = 200_000
# The end of a traceback says most.
_TEXT_LENGTH = 8_000
_NODE_MESSAGE_LENGTH = 300


def kept_results(results: list[Document]) -> list[Document]:
    """The first, the last ones, and those with the extremes of each metric, in their order."""
    if len(results) <= RESULTS_KEPT:
        return results
    kept = {0, *range(len(results) - RESULTS_KEPT, len(results))}
    lowest: dict[str, tuple[float, int]] = {}
    highest: dict[str, tuple[float, int]] = {}
    for index, result in enumerate(results):
        for name, value in result["metrics"].items():
            # A comparison with a NaN, as of a training that diverged, is false: it is neither.
            if name not in lowest or value < lowest[name][0] or lowest[name][0] != lowest[name][0]:
                lowest[name] = value, index
            if name not in highest or value > highest[name][0] or highest[name][0] != highest[name][0]:
                highest[name] = value, index
    kept.update(index for _, index in (*lowest.values(), *highest.values()))
    return [results[index] for index in sorted(kept)]


def in_little_room(status: Document) -> Document:
    """The same status, of bounded length whatever the number of epochs and evaluations."""
    evaluations = kept_results(status["evaluations"])
    left_out = status["evaluations_left_out"] + len(status["evaluations"]) - len(evaluations)
    return {
        **status,
        **{name: status[name][-_TEXT_LENGTH:] for name in ("message", "traceback", "output")},
        "evaluations": evaluations,
        "evaluations_left_out": left_out,
        "nodes": [{**node, "message": node["message"][:_NODE_MESSAGE_LENGTH]} for node in status["nodes"]],
        "servers": shortened(status["servers"], _SERVERS_LENGTH),
        "audit": written_short(status["audit"]),
    }


def in_least_room(status: Document) -> Document:
    """What must be known of a job that is over: how it ended, the last evaluation, and whether the audit is exact."""
    evaluations = status["evaluations"][-1:]
    left_out = status["evaluations_left_out"] + len(status["evaluations"]) - len(evaluations)
    return {
        **status,
        **{name: status[name][-_NODE_MESSAGE_LENGTH:] for name in ("message", "traceback", "output")},
        "losses": status["losses"][-1:],
        "evaluations": evaluations,
        "evaluations_left_out": left_out,
        "remarks": [],
        "nodes": [],
        "servers": without_tables(status["servers"])[:1],
        "audit": without_rows(status["audit"]),
    }
