"""Commands on the evaluation under way."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.master.commands.command import Command
from elasticdl.master.commands.shards import UnreadableSamples

# A metric's states as the journal keeps them: [name, [[dtype, shape, base64 of the compressed bytes], ...]].
JournaledStates = list[tuple[str, list[tuple[str, list[int], str]]]]


@dataclass(frozen=True, kw_only=True)
class ReportEvaluation(Command[None]):
    """The states of the metrics over one shard."""

    worker: str
    evaluation: int
    lease_id: int
    states: JournaledStates
    bad: list[UnreadableSamples]


@dataclass(frozen=True, kw_only=True)
class ClaimEvaluation(Command[bool]):
    """A worker offers to turn the sum of the states into values. Returns whether it shall."""

    worker: str
    evaluation: int


@dataclass(frozen=True, kw_only=True)
class FinishEvaluation(Command[bool]):
    """Returns True if these are the first values of the evaluation under way."""

    evaluation: int
    metrics: dict[str, float]
