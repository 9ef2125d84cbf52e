"""Output of the planner: one decision per job, and where every instance goes.

Decisions are data. The controller applies them by writing desired sizes into job records, the simulator by moving
instances on a virtual clock, `elasticdl plan` by printing their reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# role -> machine -> count
Placement = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class _Decision:
    """job: its key, `namespace/name`. size: planned count of the elastic group. placement: planned instances.

    reason: a sentence for people; numbers: the figures in it for programs.
    """

    job: str
    size: int
    previous_size: int
    placement: Placement
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Admit(_Decision):
    """A waiting job starts with all its role groups."""


@dataclass(frozen=True, kw_only=True)
class Grow(_Decision):
    """A running job gets more instances; `victims` are those that move to another machine, if any."""

    victims: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Shrink(_Decision):
    """A running job releases the named pods (keys, `namespace/name`) and keeps at least its minimum."""

    victims: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Move(_Decision):
    """A running job keeps its size; the named pods are replaced on other machines."""

    victims: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Preempt(_Decision):
    """A running job stops entirely for one of higher priority and waits again."""

    victims: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hold(_Decision):
    """Keeps the state: a running job keeps its instances, a waiting job (size 0) keeps waiting."""


@dataclass(frozen=True, kw_only=True)
class Reject(_Decision):
    """The job can never run on these machines or within its quota; it blocks no other job."""


Decision = Admit | Grow | Shrink | Move | Preempt | Hold | Reject


@dataclass(frozen=True, kw_only=True)
class Plan:
    """decisions: one per job, sorted by job. reserved: room kept for unscheduled pods of others, pod -> machine."""

    decisions: tuple[Decision, ...]
    reserved: Mapping[str, str] = field(default_factory=dict)

    def of(self, job: str) -> Decision:
        for decision in self.decisions:
            if decision.job == job:
                return decision
        raise KeyError(job)

    @property
    def changes(self) -> tuple[Decision, ...]:
        """The decisions that change something."""
        return tuple(decision for decision in self.decisions if not isinstance(decision, Hold | Reject))
