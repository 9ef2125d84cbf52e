"""The data set that a training program announces, and its account in the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.master.ledger.shard_types import DatasetSpec, LedgerError


@dataclass(frozen=True, kw_only=True)
class DatasetAnnouncement:
    """The data set as a program announces it."""

    name: str
    size: int
    batch_size: int
    epochs: int
    minibatches_per_shard: int
    shuffle_shards: bool = False
    # The records of a shard are given in another order: only its end means something.
    shuffle_records: bool = False
    # The type of its tasks, which the program gets back with every shard.
    task_type: int = 1
    # Without the last batch, if that would be a smaller one.
    drop_remainder: bool = False

    @property
    def samples(self) -> int:
        return self.size - self.size % self.batch_size if self.drop_remainder else self.size

    def spec(self, *, seed: int, max_shard_failures: int) -> DatasetSpec:
        if self.batch_size < 1:
            raise LedgerError(f"Data set {self.name}: batch_size is {self.batch_size}, must be at least 1.")
        if self.drop_remainder and 0 < self.size < self.batch_size:
            raise LedgerError(
                f"Data set {self.name}: its {self.size} samples are less than one batch of {self.batch_size}, "
                "and what is left over is to be dropped."
            )
        return DatasetSpec(
            name=self.name,
            size=self.samples,
            shard_size=self.batch_size * max(1, self.minibatches_per_shard),
            batch_size=self.batch_size,
            epochs=self.epochs,
            shuffle=self.shuffle_shards,
            seed=seed,
            overlapping=True,
            max_shard_failures=max_shard_failures,
        )
