"""Every decision has a log line that begins with the event and names the node."""

from __future__ import annotations

import pytest

from elasticdl.master.health.decisions import Action, Decision, FailureKind
from elasticdl.master.health.log_lines import describe


def decision(kind: FailureKind, action: Action = Action.KILL) -> Decision:
    return Decision(node="worker-3", kind=kind, since=100.0, deadline=160.0, action=action)


@pytest.mark.parametrize("kind", FailureKind)
def test_killing_line_begins_with_the_event_and_the_node(kind: FailureKind) -> None:
    line = describe(decision(kind), now=161.4, shards=0)
    assert line.startswith("Killing worker-3: ")
    assert " 61 s" in line or " 60 s" in line


def test_killing_line_of_a_node_with_shards_counts_them() -> None:
    line = describe(decision(FailureKind.STALLED), now=161.4, shards=2)
    assert line == "Killing worker-3: stalled for 61 s; requeueing 2 shards"


def test_requeueing_line_counts_the_shards() -> None:
    line = describe(decision(FailureKind.STALLED, Action.REQUEUE_SHARDS), now=161.4, shards=1)
    assert line == "Requeueing 1 shard of worker-3: leased 61 s ago, and it still waits for a shard"
