"""Commands of the recovery from a lost journal: workers reclaim what they did since an old snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.master.commands.checkpoints import SavedCheckpoint
from elasticdl.master.commands.command import Command


@dataclass(frozen=True, kw_only=True)
class ReportedShard:
    """A shard as its worker remembers it."""

    lease_id: int
    dataset: str
    epoch: int
    start: int
    # Done up to here.
    position: int
    end: int
    batches: int
    atomic: bool = False
    # It is being worked on; else it is over, and what is not done of it was given up.
    held: bool = False
    # As in `Lease`.
    applied: str = ""


@dataclass(frozen=True, kw_only=True)
class StartReclaim(Command[None]):
    """The state comes from an old snapshot. `saved`: the checkpoint to roll back to if need be. `is_incomplete`:
    workers may have forgotten some of what was done since.
    """

    lineage: str
    saved: SavedCheckpoint | None
    is_incomplete: bool = False


@dataclass(frozen=True, kw_only=True)
class AdoptNode(Command[None]):
    """A worker that was started after the snapshot. `place`: the one that it takes, if that is known."""

    node: str
    place: int | None = None


@dataclass(frozen=True, kw_only=True)
class SkipNodeNumber(Command[None]):
    """A node with this number was started after the snapshot: the next one gets a higher number."""

    role: str
    number: int


@dataclass(frozen=True, kw_only=True)
class RaiseGeneration(Command[None]):
    """The job has rolled back after the snapshot: it does so once more, to a generation above this one."""

    above: int


@dataclass(frozen=True, kw_only=True)
class ReclaimShards(Command[list[int]]):
    """Restores the shards that a worker remembers. Returns the leases that it has to drop."""

    worker: str
    generation: int
    seen_generation: int
    barrier: int
    sizes: dict[str, int]
    epochs_ended: list[dict[str, Any]]
    shards: list[ReportedShard]


@dataclass(frozen=True, kw_only=True)
class FinishReclaim(Command[None]):
    """Stops waiting for workers. What no worker has reclaimed is trained again."""
