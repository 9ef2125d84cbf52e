"""A JobStatus in bounded size, however long the job trains.

An object of a cluster holds a megabyte, and each write of it goes to all watchers, so the job record has neither every
evaluation nor a row for every epoch. What people ask for stays: the first evaluation, the newest ones, and of every
metric the lowest and the highest, as it is unknown here which of them is the better one. The audit bounds itself
(`elasticdl.jobs.audit`). What is omitted is counted, so that readers can say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from elasticdl.jobs.json_codec import encode
from elasticdl.jobs.status import JobStatus, ServerReport

EVALUATIONS_KEPT = 200
# Reports of many servers with many tables would fill the object alone.
_SERVERS_LENGTH = 200_000
# The end of a traceback says most.
_TEXT_LENGTH = 8_000
_SHORT_TEXT_LENGTH = 300


def compacted(status: JobStatus) -> JobStatus:
    """Returns the status in a bounded size, whatever the number of epochs and evaluations."""
    kept = kept_indices([evaluation.metrics for evaluation in status.evaluations])
    return replace(
        status,
        message=status.message[-_TEXT_LENGTH:],
        traceback=status.traceback[-_TEXT_LENGTH:],
        output=status.output[-_TEXT_LENGTH:],
        evaluations=tuple(status.evaluations[index] for index in kept),
        evaluations_omitted=status.evaluations_omitted + len(status.evaluations) - len(kept),
        nodes=tuple(replace(node, message=node.message[:_SHORT_TEXT_LENGTH]) for node in status.nodes),
        servers=shortened(status.servers, _SERVERS_LENGTH),
        audit=status.audit.compacted() if status.audit else None,
    )


def outcome_only(status: JobStatus) -> JobStatus:
    """Returns what must be known of a job that is over: its outcome, the last evaluation, the verdict of the audit."""
    evaluations = status.evaluations[-1:]
    return replace(
        status,
        message=status.message[-_SHORT_TEXT_LENGTH:],
        traceback=status.traceback[-_SHORT_TEXT_LENGTH:],
        output=status.output[-_SHORT_TEXT_LENGTH:],
        losses=status.losses[-1:],
        evaluations=evaluations,
        evaluations_omitted=status.evaluations_omitted + len(status.evaluations) - len(evaluations),
        remarks=(),
        nodes=(),
        servers=status.without_tables().servers[:1],
        audit=status.audit.totals_only() if status.audit else None,
    )


def kept_indices(metrics: Sequence[Mapping[str, float]]) -> list[int]:
    """Returns which evaluations to keep: the first, the newest, and those with the extremes of each metric."""
    if len(metrics) <= EVALUATIONS_KEPT:
        return [*range(len(metrics))]
    kept = {0, *range(len(metrics) - EVALUATIONS_KEPT, len(metrics))}
    lowest: dict[str, tuple[float, int]] = {}
    highest: dict[str, tuple[float, int]] = {}
    for index, values in enumerate(metrics):
        for name, value in values.items():
            # A comparison with NaN, as of a training that diverged, is false: it is neither.
            if name not in lowest or value < lowest[name][0] or lowest[name][0] != lowest[name][0]:
                lowest[name] = value, index
            if name not in highest or value > highest[name][0] or highest[name][0] != highest[name][0]:
                highest[name] = value, index
    kept.update(index for _, index in (*lowest.values(), *highest.values()))
    return sorted(kept)


def kept_results(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns those evaluations of a snapshot that `compacted` keeps in a status."""
    return [results[index] for index in kept_indices([result["metrics"] for result in results])]


def shortened(servers: tuple[ServerReport, ...], most: int) -> tuple[ServerReport, ...]:
    """Returns the reports in about `most` characters of JSON: without hot ids, without tables if that is too long."""
    if len(json.dumps(encode(servers))) <= most:
        return servers
    cooled = tuple(
        replace(server, tables=tuple(replace(table, hot_ids=()) for table in server.tables))
        for server in servers
    )
    if len(json.dumps(encode(cooled))) <= most:
        return cooled
    return tuple(replace(server, tables=()) for server in servers)
