"""The interface of a master for programs: the job's, over the network, or one in the program itself.

`MasterClient` (master_client.py) and `AloneMaster` (alone.py) both are a `Master`, so that a program behaves the same
in a job and on its author's desk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from elasticai_api.common.constants import DatasetShardRemainder
from elasticai_api.errors import ShardError
from elasticai_api.proto import elasticai_api_pb2 as pb

# The width of the numbers on the wire.
_MAX_INT32 = 2**31 - 1
# The largest data set that a master can account for.
_MAX_SIZE = 2**62
_REMAINDERS = (None, "", DatasetShardRemainder.FILL, DatasetShardRemainder.DROP)


@dataclass(frozen=True, kw_only=True)
class DatasetParams:
    """A data set as it is announced. Every worker announces it; all must say the same.

    Raises `ShardError` where a value can't be meant.
    """

    name: str
    size: int
    batch_size: int
    num_epochs: int
    shuffle: bool = False
    shuffle_shards: bool = False
    num_minibatches_per_shard: int = 0
    task_type: int = pb.TRAINING
    remainder: str | None = None

    def __post_init__(self) -> None:
        _check("dataset_size", self.size, 1, _MAX_SIZE)
        _check("batch_size", self.batch_size, 1, _MAX_INT32)
        _check("num_epochs", self.num_epochs, 1, _MAX_INT32)
        _check("num_minibatches_per_shard", self.num_minibatches_per_shard, 0, _MAX_INT32)
        if self.remainder not in _REMAINDERS:
            raise ShardError(f"remainder must be 'fill' or 'drop', not {self.remainder!r}.")
        if self.task_type not in (pb.TRAINING, pb.EVALUATION, pb.PREDICTION):
            raise ShardError(f"task_type must be TRAINING, EVALUATION or PREDICTION, not {self.task_type!r}.")
        if self.used_size == 0:
            raise ShardError(
                f"With remainder='drop' nothing is left of the data set {self.name!r}: "
                f"its {self.size} samples do not make one batch of {self.batch_size}."
            )

    @property
    def used_size(self) -> int:
        """Returns the number of samples of an epoch."""
        if self.remainder == DatasetShardRemainder.DROP:
            return self.size - self.size % self.batch_size
        return self.size


def check_batch_size(value: int) -> None:
    """Raises `ShardError` for what is no number of samples in a batch."""
    _check("batch_size", value, 1, _MAX_INT32)


def _check(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ShardError(f"{name} must be a whole number, not {value!r}.")
    if not low <= value <= high:
        limit = f"at least {low}" if value < low else f"at most {high}"
        raise ShardError(f"{name} must be {limit}, not {value}.")


@dataclass(frozen=True, kw_only=True)
class ShardProgress:
    """The progress in a shard: its samples before `position` are done."""

    task_id: int
    position: int
    batches: int
    ended: bool


@dataclass(frozen=True, kw_only=True)
class FetchedShard:
    """A shard as the master gave it out."""

    task: pb.Task
    # From 1 on; 0 where the master does not tell.
    epoch: int = 0


class Master(ABC):
    """Leases shards and records their progress.

    A data set is known by its name from its first announcement on.
    """

    # Whether a call may take time: then a thread reports progress beside the training.
    remote: bool
    # Names the ledger in which the numbers of shards are unique; the same after a restart of the master. Empty where
    # the master does not say which shards are lost: then no worker can be fenced.
    ledger_id: str

    @abstractmethod
    def announce(self, params: DatasetParams) -> None:
        """Makes a data set known. Raises `ShardError` if it is known already and was another."""

    @abstractmethod
    def fetch(self, dataset: str, count: int) -> list[FetchedShard]:
        """The next shards for this worker, waited for if need be: at least one and at most `count`; none when there
        will be no more.
        """

    @abstractmethod
    def progress(
        self,
        dataset: str,
        shards: Sequence[ShardProgress],
        *,
        global_step: int | None = None,
        loss: float | None = None,
        given_back: Sequence[int] = (),
    ) -> list[int]:
        """Takes down how far shards have come. Returns those that are not this worker's any more.

        `given_back` are shards that were fetched and not begun: they go to others.
        """

    @abstractmethod
    def fail(self, dataset: str, task_id: int, message: str) -> None:
        """Gives back what is not done of a shard, because of an error."""

    @abstractmethod
    def epoch(self, dataset: str) -> int:
        """Returns the epoch whose shards are leased: 0 before the first, then 1, 2, ..."""

    @abstractmethod
    def checkpoint(self, dataset: str) -> str:
        """Returns the samples that are still to be done, as JSON."""

    @abstractmethod
    def restore(self, content: str) -> bool:
        """Goes on from a checkpoint: what was done since then is done again."""

    @abstractmethod
    def reset(self, dataset: str) -> None:
        """Begins again, with the first epoch."""

    @abstractmethod
    def close(self) -> None:
        """Makes no more calls; a caller that waits for an answer gets an error."""
