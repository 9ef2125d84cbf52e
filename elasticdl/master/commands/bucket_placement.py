"""Commands on the bucket map of the parameter servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.master.commands.command import Command

# (bucket, server that has copied it, incarnation of that server)
CopiedBucket = tuple[int, int, str]


@dataclass(frozen=True, kw_only=True)
class AdvanceMigration(Command[None]):
    """Servers have copied buckets and taken some over, by the map of this version."""

    version: int
    filled: list[CopiedBucket]
    taken: list[int]


@dataclass(frozen=True, kw_only=True)
class RebalanceBuckets(Command[None]):
    """Servers are unevenly loaded. `loads`: the load of each bucket."""

    loads: list[int]


@dataclass(frozen=True, kw_only=True)
class ReplanBuckets(Command[None]):
    """Stops waiting for the servers that are missing."""


@dataclass(frozen=True, kw_only=True)
class AdoptBucketMap(Command[None]):
    """The servers have a newer map than a master that recovered from an old snapshot."""

    generation: int
    buckets: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RenumberBucketMap(Command[None]):
    """A server did not answer a recovering master, and may know newer maps: later maps get higher versions."""
