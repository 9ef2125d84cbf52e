"""The parts of a job's trace, independent of any library."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

AttributeValue = str | int | float


@dataclass(frozen=True, kw_only=True)
class FinishedSpan:
    """Times are nanoseconds since 1970."""

    name: str
    span_id: int
    parent_id: int | None
    start: int
    end: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    # Why it failed; "": it did not.
    error: str = ""


class SpanSink(Protocol):
    """Takes spans and returns at once."""

    def add(self, span: FinishedSpan) -> None: ...


def trace_id(run: str) -> int:
    """The trace of a run of a job, the same for every master of it."""
    return int.from_bytes(_digest(run)[:16], "big") or 1


def span_id(run: str, name: str) -> int:
    """The id of a span that spans of other masters belong to as well."""
    return int.from_bytes(_digest(f"{run}/{name}")[:8], "big") or 1


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
