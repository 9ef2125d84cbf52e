"""Statuses of nodes, from the few fields that a test is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus


def node_status(fields: Mapping[str, Any]) -> NodeStatus:
    """`phase` and `reason` may be given by their values."""
    phase, reason = NodePhase(fields["phase"]), EndReason(fields.get("reason", ""))
    return NodeStatus(**{**fields, "phase": phase, "reason": reason})
