"""The workers of a job that the cluster preempts last: `high`, or `high=0.5` for the first half of them."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.jobs.flags.grammar import Grammar, Real
from elasticdl.jobs.flags.names import DNS_NAME
from elasticdl.jobs.flags.pairs import BadValue


@dataclass(frozen=True, kw_only=True)
class PodPriority:
    """A priority class, and the part of the nodes that has it; the others have the class `low`."""

    class_name: str
    fraction: float = 1.0

    def class_of(self, index: int, count: int) -> str:
        """The class of one of `count` nodes."""
        return self.class_name if index < round(self.fraction * count) else "low"


def parse_priority(text: str) -> PodPriority:
    """`NAME`, `NAME=FRACTION`, or `FRACTION`, which is `high=FRACTION`."""
    name, equals, fraction = text.partition("=")
    if not equals and name.startswith(tuple("0123456789.")):
        name, equals, fraction = "high", "=", name
    if equals and not name:
        raise BadValue(f"{text!r} names no priority class")
    if name:
        DNS_NAME.check(name)
    part = Real().parse(fraction) if equals else 1.0
    if part > 1:
        raise BadValue(f"{fraction} is not a fraction between 0 and 1")
    return PodPriority(class_name=name, fraction=part)


class PriorityGrammar(Grammar[str]):
    """Kept as text: only the platform that has priorities reads it apart (with `parse_priority`)."""

    metavar = "NAME[=FRACTION]"

    def parse(self, raw: object) -> str:
        text = str(raw) if isinstance(raw, float) else raw
        if not isinstance(text, str):
            raise BadValue(f"{raw!r} is not text")
        parse_priority(text.strip())
        return text.strip()
