"""The words of the ledger: what a data set is to it, what a worker holds, what comes back, what can go wrong.

All of them are plain values. How they move is in `dataset_account.py` (one data set) and `ledger.py` (all of them,
and the workers).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from elasticdl.master.ledger.permutation import MAX_SIZE


class LedgerError(Exception):
    """A call that makes no sense in the present state. The ledger is as it was before the call."""


class LostLease(LedgerError):
    """The lease is not, or not any more, this worker's: what it did on it since its last report is void."""

    def __init__(self, lease_id: int, worker: str) -> None:
        super().__init__(f"Lease {lease_id} is not held by {worker}.")
        self.lease_id = lease_id
        self.worker = worker


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The properties of a data set that the ledger needs to lease shards."""

    name: str
    size: int
    shard_size: int
    # Splits are made at multiples of it, counted from the start of a lease.
    batch_size: int
    epochs: int
    shuffle: bool
    seed: int
    # The next epoch begins only when it is opened, and not as soon as this one is done.
    gated: bool = False
    # The next epoch begins as soon as this one is leased, and not only when it is done: a program that makes
    # batches across shards would wait for the rest of a batch, and the epoch for that batch.
    overlapping: bool = False
    # So many failures of the program on one shard are borne; one more gives it up.
    max_shard_failures: int = 3

    def __post_init__(self) -> None:
        for field in ("size", "shard_size", "batch_size", "epochs"):
            if getattr(self, field) < 1:
                raise LedgerError(
                    f"Data set {self.name}: {field} is {getattr(self, field)}, must be at least 1."
                )
        if self.size > MAX_SIZE:
            raise LedgerError(f"Data set {self.name}: {self.size} samples are more than 2**62.")
        if self.max_shard_failures < 0:
            raise LedgerError(f"Data set {self.name}: max_shard_failures is negative.")

    def differences(self, other: DatasetSpec) -> str:
        """Describes the differences of two specs of one name, e.g. "size 10 and 12"."""
        return ", ".join(
            f"{f.name} {getattr(self, f.name)} and {getattr(other, f.name)}"
            for f in fields(self)
            if getattr(self, f.name) != getattr(other, f.name)
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Samples [start, end) of one epoch, given to one worker; those before `position` are done."""

    lease_id: int
    dataset: str
    worker: str
    epoch: int
    start: int
    end: int
    failures: int
    position: int
    batches: int
    # As in `Remainder`.
    applied: str = ""


@dataclass(frozen=True, kw_only=True)
class Returned:
    """Samples that were leased, are not done, and wait for another worker now."""

    dataset: str
    epoch: int
    start: int
    end: int
    failures: int

    def __str__(self) -> str:
        return f"samples [{self.start}, {self.end}) of {self.dataset}, epoch {self.epoch + 1}"


class ShardGivesUp(Exception):
    """The program has failed on some samples more often than is allowed. They are back in the queue."""

    def __init__(self, returned: Returned) -> None:
        super().__init__(f"The program has failed {returned.failures} times on {returned}.")
        self.returned = returned


@dataclass(frozen=True, kw_only=True)
class SplitProposal:
    """A lease whose samples from `new_end` on another worker could do: all of them if that is its start."""

    dataset: str
    lease_id: int
    worker: str
    new_end: int
    samples: int


@dataclass(frozen=True)
class Remainder:
    """Samples [start, end) of an epoch that wait in the queue, and how often the program has failed on them."""

    start: int
    end: int
    failures: int
    epoch: int
    # The buckets of the parameter servers that have had these samples, as bits in hex: a worker has ended in the middle
    # of the push of this batch. Empty: none of them has.
    applied: str = ""

    def to_json(self) -> list[Any]:
        return [self.start, self.end, self.failures, self.epoch, self.applied]


@dataclass(kw_only=True)
class Holding:
    """The ledger's own, changing account of one lease."""

    lease_id: int
    worker: str
    request_id: int
    epoch: int
    start: int
    end: int
    position: int
    failures: int
    batches: int = 0
    # The program gives no order inside the shard: there is no progress in it but to its end.
    atomic: bool = False
    # As in `Remainder`.
    applied: str = ""
    # Its worker has ended, and what is left may count twice (`DatasetAccount.doubt`). Over when it is given back.
    is_doubtful: bool = False

    @property
    def remaining(self) -> int:
        return self.end - self.position

    @property
    def touched(self) -> bool:
        return self.position > self.start or self.batches > 0

    def lease(self, dataset: str) -> Lease:
        """Returns the lease without the ledger's own fields."""
        return Lease(
            lease_id=self.lease_id,
            dataset=dataset,
            worker=self.worker,
            epoch=self.epoch,
            start=self.start,
            end=self.end,
            failures=self.failures,
            position=self.position,
            batches=self.batches,
            applied=self.applied,
        )

    def to_json(self) -> list[Any]:
        return [
            self.lease_id,
            self.worker,
            self.request_id,
            self.epoch,
            self.start,
            self.end,
            self.position,
            self.failures,
            self.batches,
            self.atomic,
            self.applied,
        ]

    @classmethod
    def from_json(cls, document: list[Any]) -> Holding:
        lease_id, worker, request_id, epoch, start, end, position, failures, batches, atomic, *added = (
            document
        )
        return cls(
            lease_id=lease_id,
            worker=worker,
            request_id=request_id,
            epoch=epoch,
            start=start,
            end=end,
            position=position,
            failures=failures,
            batches=batches,
            atomic=atomic,
            # Not in the first ledgers.
            applied=added[0] if added else "",
        )
