"""Commands on the shards of a data set: announced, leased, reported and split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticdl.master.commands.command import Command
from elasticdl.master.ledger.shard_types import Lease

# (lease id, position, batches since the lease, only the end of the shard counts)
ShardProgress = tuple[int, int, int, bool]


@dataclass(frozen=True, kw_only=True)
class UnreadableSamples:
    """Samples [start, end) of a data set that cannot be read, and the reader's error."""

    dataset: str
    start: int
    end: int
    where: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class AnnounceDataset(Command[None]):
    """A worker has counted the samples of a data set. Raises `LedgerError` if another worker counted differently."""

    dataset: str
    size: int


@dataclass(frozen=True, kw_only=True)
class LeaseShards(Command[list[Lease]]):
    """Leases up to `count` shards. `Dispatcher.may_lease` is asked before."""

    frequent: ClassVar[bool] = True

    dataset: str
    worker: str
    count: int
    request_id: int


@dataclass(frozen=True, kw_only=True)
class ReportProgress(Command[list[int]]):
    """Progress of a worker in its shards. Returns the leases that the worker has lost."""

    frequent: ClassVar[bool] = True

    worker: str
    report_id: int
    progress: list[ShardProgress]
    bad: list[UnreadableSamples]
    loss_sum: float
    loss_batches: int
    stop_training: bool


@dataclass(frozen=True, kw_only=True)
class TruncateLease(Command[None]):
    """A worker gives up the part of its shard from `end` on, for an idle worker."""

    worker: str
    lease_id: int
    end: int
