"""Commands of training programs with a loop of their own: their data sets, and the steps of all-reduce."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.master.commands.command import Command
from elasticdl.master.commands.shards import UnreadableSamples
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement


@dataclass(frozen=True, kw_only=True)
class OpenDataset(Command[None]):
    """Raises `LedgerError` if another worker has announced another size."""

    announcement: DatasetAnnouncement


@dataclass(frozen=True, kw_only=True)
class FailShard(Command[None]):
    """The program could not process this shard."""

    lease_id: int
    message: str


@dataclass(frozen=True, kw_only=True)
class ReturnLeases(Command[None]):
    """A worker has prefetched these shards and does not use them."""

    worker: str
    lease_ids: list[int]


@dataclass(frozen=True, kw_only=True)
class RevokeLeases(Command[None]):
    """A worker waits for a shard, so it does not know of those that it was leased."""

    worker: str


@dataclass(frozen=True, kw_only=True)
class ResetDataset(Command[None]):
    dataset: str


@dataclass(frozen=True, kw_only=True)
class RestoreShards(Command[None]):
    """Rolls a data set back to a checkpoint of its shards, in the form of `ProgramDatasets.checkpoint`."""

    content: str


@dataclass(frozen=True, kw_only=True)
class HoldTrainingState(Command[None]):
    """This worker has the model of a training by all-reduce. `older`: the members before it in its round."""

    worker: str
    dataset: str
    older: list[str]


@dataclass(frozen=True, kw_only=True)
class ReleaseTrainingState(Command[None]):
    """This worker takes no part in the training by all-reduce any more."""

    worker: str


@dataclass(frozen=True, kw_only=True)
class AdvanceSteps(Command[int]):
    """All micro-batches of an epoch before place `at` are done. Returns the number of samples newly done."""

    worker: str
    report_id: int
    dataset: str
    epoch: int
    at: int
    step: int
    loss_sum: float
    loss_steps: int
    stop_training: bool
    bad: list[UnreadableSamples]
