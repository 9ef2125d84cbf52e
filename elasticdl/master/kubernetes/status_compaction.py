"""A JobStatus in bounded size, however long the job trains.

An object of a cluster holds a megabyte, and each write of it goes to all watchers, so the job record has neither every
evaluation nor a row for every epoch. What people ask for stays: the first evaluation, the newest ones, and of every
metric the lowest and the highest, as it is unknown here which of them is the better one. The audit bounds itself
(`elasticdl.jobs.audit`). What is omitted is counted, so that readers can say so.
"""

from __future__ import annotations

import json
from dataclasses import replace

from elasticdl.jobs.json_codec import encode
from elasticdl.jobs.status import JobStatus, ServerReport
from elasticdl.master.lifecycle.evaluation_history import kept_indices

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
