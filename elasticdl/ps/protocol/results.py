"""The results of the calls to a store. A mask `moved` has the buckets of a call that are served elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.core.bucket_versions import Newer
from elasticdl.ps.core.buckets import BucketMap
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.replication.peers import PendingReplication
from elasticdl.ps.storage.update_history import NO_BATCH, LastPush


@dataclass(frozen=True, kw_only=True)
class PushResult:
    accepted: bool
    version: int
    # Batches so far of which nothing was applied.
    refused: int = 0
    # The buckets of the push that are served elsewhere, or were handed over before it was replicated.
    moved: Mask | None = None
    # The message may still be on its way to a replica: its memory must not be reused.
    in_use: bool = False


@dataclass(frozen=True, kw_only=True)
class InitializeResult:
    # Whether there were values before.
    done_before: bool
    moved: Mask
    in_use: bool = False


@dataclass(frozen=True, kw_only=True)
class PendingInitialize:
    """Initial values that have been taken here, and wait for acknowledgements."""

    done_before: bool
    moved: Mask
    waiting: PendingReplication

    def answer(self) -> InitializeResult:
        return InitializeResult(
            done_before=self.done_before,
            moved=self.moved | self.waiting.lost,
            in_use=self.waiting.given_up,
        )


@dataclass(frozen=True, kw_only=True)
class PullResult:
    initialized: bool
    # The version of the oldest bucket; and the buckets that are newer.
    version: int = 0
    newer: Newer = ()
    unchanged: bool = False
    trainable: Mapping[str, Array] = field(default_factory=dict)
    state: Mapping[str, Array] = field(default_factory=dict)
    # The requested buckets that are not here, or not in the copy-on-write snapshot.
    moved: Mask | None = None


@dataclass(frozen=True, kw_only=True)
class PendingPush:
    """A push that has been applied here, and waits for acknowledgements."""

    accepted: bool
    version: int
    refused: int
    moved: Mask
    waiting: PendingReplication

    def answer(self) -> PushResult:
        moved = self.moved | self.waiting.lost
        return PushResult(
            accepted=self.accepted,
            version=self.version,
            refused=self.refused,
            moved=moved if moved.any() else None,
            in_use=self.waiting.given_up,
        )


@dataclass(frozen=True, kw_only=True)
class FenceResult:
    """A worker whose pushes are rejected from now on."""

    # Its last batch that all of these buckets have had.
    last: LastPush
    buckets: Mask
    # The batches after that one, and which of the buckets have had them: the worker has ended in the middle of a push.
    newer: Sequence[tuple[Mask, LastPush]] = ()


@dataclass(frozen=True, kw_only=True)
class PendingFence:
    """A fence that waits for acknowledgements."""

    # Its last batch, by buckets with one history.
    batches: Sequence[tuple[Mask, LastPush]]
    waiting: PendingReplication

    def answer(self) -> FenceResult:
        """Without buckets that have become another server's, who may not have had it: that one is to be asked."""
        buckets = self.waiting.mask & ~self.waiting.lost
        theirs = [(mask & buckets, last) for mask, last in self.batches if (mask & buckets).any()]
        common = min((last for _, last in theirs), key=lambda last: last.sequence, default=NO_BATCH)
        return FenceResult(
            last=common,
            buckets=buckets,
            newer=[(mask, last) for mask, last in theirs if last.sequence > common.sequence],
        )


@dataclass(frozen=True, kw_only=True)
class StoreStatus:
    generation: int
    ready: bool
    initialized: bool
    version: int
    # Single numbers that are trained in dense arrays, and the bytes of these without slots, of tables with them.
    parameters: int
    bytes: int
    pushes: int
    rows: int = 0
    not_finite: int = 0
    refused: int = 0
    map: BucketMap | None = None
    # By bucket: ids and pushes that were for it.
    loads: Sequence[int] = ()
    # Buckets that were copied, to whom, and which incarnation of it; those that were handed over to this server.
    filled: Sequence[tuple[int, int, str]] = ()
    taken: Sequence[int] = ()
    # The names of the copies that are kept.
    frozen: Sequence[str] = ()
