"""The data sets that training programs announce and fetch shards of: commands of the state, like those beside it.

A program of the user's own says how large its data is, in which batches and how many epochs it wants it, and gets
shards. Every worker says so; the first one counts. What the others say must not contradict it in the size: then two
workers see different files, and indices mean different samples to them.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from elasticdl.master.ledger.ledger import DatasetSpec, Lease, Ledger, LedgerError, LostLease, ShardGivesUp
from elasticdl.master.lifecycle.roster import JobFailure
from elasticdl.master.programs.program_completion import TRAINERS

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState

# A checkpoint of shards lists them for those who read it up to so many; it does not need the list itself.
_SHARDS_LISTED = 10_000


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """What a program says of its data."""

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


class ProgramData:
    COMMANDS = ("open", "fail_shard", "give_back", "take_back", "reset", "restore_shards")

    def __init__(self, state: JobState) -> None:
        self._state = state
        self.announced: dict[str, Announcement] = {}

    @property
    def _ledger(self) -> Ledger:
        return self._state.ledger

    # -- commands --------------------------------------------------------------------------------------------

    def open(self, *, announcement: dict[str, Any]) -> None:
        new = Announcement(**announcement)
        known = self.announced.get(new.name)
        if known is None:
            plan = self._state.plan
            self._ledger.add(new.spec(seed=plan.seed, max_shard_failures=plan.max_shard_failures))
            self.announced[new.name] = new
            self._state.sizes[new.name] = new.samples
        elif known.size != new.size:
            raise LedgerError(
                f"The data set {new.name} has {new.size} samples for one worker and {known.size} for another. "
                "All workers must see the same files."
            )

    def fail_shard(self, *, lease_id: int, message: str) -> None:
        """The program could not do this shard. Somebody tries again, and not for ever."""
        try:
            self._ledger.release(lease_id, failed=True)
        except LostLease:
            return
        except ShardGivesUp as gives_up:
            self._state.fail_job(JobFailure(message=f"{gives_up}\n{message}"), "")

    def give_back(self, *, worker: str, lease_ids: list[int]) -> None:
        """A worker has fetched these ahead and does not use them. What is not its own any more stays where it is."""
        # Each goes to the front of the queue, so the first goes last.
        for lease_id in sorted(lease_ids, reverse=True):
            lease = self._ledger.lease_of(lease_id)
            if lease is not None and lease.worker == worker:
                self._ledger.release(lease_id)

    def take_back(self, *, worker: str) -> None:
        """A worker that waits for a shard does not work on those that it was given and cannot have got."""
        self._ledger.release_worker(worker)

    def reset(self, *, dataset: str) -> None:
        self._ledger.reset_dataset(dataset)

    def restore_shards(self, *, content: str) -> None:
        """Goes on where a checkpoint of shards was taken. What was given out since is void."""
        document = json.loads(content)
        name = document["dataset_name"]
        announced = self.announced.get(name)
        if announced is None:
            raise LedgerError(f"The checkpoint is of the data set {name}, which nobody has announced.")
        if "account" not in document:
            document["account"] = _account_of_lists(document, self._ledger.spec(name))
        others = self._ledger.snapshot()
        others["datasets"][name] = document["account"]
        # Only this data set goes back: leases of the others stay as they are.
        self._ledger.restore_dataset(name, Ledger.restore(others))

    # -- questions -------------------------------------------------------------------------------------------

    def may_end(self, dataset: str, worker: str) -> bool:
        """This worker need not wait for a shard: there will be none, or none before it is done with what it has."""
        if self._state.outcome or self._state.stopping or self._ledger.finished(dataset):
            return True
        node = self._state.roster.nodes.get(worker)
        if node is None or not node.alive or node.goes:
            return True
        # It may sit on the first half of a batch whose second half would come with the next shard.
        return any(lease.dataset == dataset for lease in self._ledger.held_by(worker))

    def share(self, dataset: str) -> int:
        """How many shards a worker may hold that it has not begun, so that others do not go short at the end."""
        ledger = self._ledger
        held = sum(lease.end - lease.position for lease in ledger.held(dataset))
        left = (ledger.remaining(dataset) - held) // ledger.spec(dataset).shard_size
        workers = sum(len(self._state.roster.alive(role)) for role in TRAINERS)
        return max(1, left // (2 * max(1, workers)))

    def finished(self) -> bool:
        return all(self._ledger.finished(name) for name in self.announced)

    def indices(self, lease: Lease) -> list[int]:
        """The order of the records of a shard, where the program wants one."""
        if not self.announced[lease.dataset].shuffle_records:
            return []
        order = list(range(lease.start, lease.end))
        random.Random(f"{self._state.plan.seed} {lease.epoch} {lease.start}").shuffle(order)
        return order

    def checkpoint(self, dataset: str) -> str:
        """Where a data set stands, as the public package tells it; `account` is what it is restored from."""
        announced = self.announced.get(dataset)
        if announced is None:
            raise LedgerError(f"Nobody has announced the data set {dataset}.")
        account = self._ledger.snapshot()["datasets"][dataset]
        doing = [[lease.position, lease.end] for lease in self._ledger.held(dataset)]
        todo = [[start, end] for start, end in self._ledger.to_do(dataset, _SHARDS_LISTED)]
        return json.dumps(
            {
                "dataset_name": dataset,
                "todo": todo,
                "doing": doing,
                "current_epoch": self._ledger.epoch(dataset) + 1,
                "num_epochs": announced.epochs,
                "batch_size": announced.batch_size,
                "dataset_size": announced.size,
                "shuffle_shards": announced.shuffle_shards,
                "account": account,
            }
        )

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> list[dict[str, Any]]:
        return [asdict(announcement) for announcement in self.announced.values()]

    def restore(self, snapshot: list[dict[str, Any]]) -> None:
        self.announced = {item["name"]: Announcement(**item) for item in snapshot}


def _account_of_lists(document: dict[str, Any], spec: DatasetSpec) -> dict[str, Any]:
    """The account that the lists of a checkpoint amount to: one that another master made has nothing else."""
    epoch = max(0, int(document["current_epoch"]) - 1)
    queue = [[int(start), int(end), 0, epoch] for start, end in [*document["doing"], *document["todo"]]]
    waiting = sum(item[1] - item[0] for item in queue)
    return {
        "spec": spec.to_json(),
        "order": [spec.shard_size, spec.shuffle, spec.seed],
        "epoch": epoch,
        # All of this epoch counts as given out; what has come back waits in the queue.
        "cursor": -(-spec.size // spec.shard_size),
        "issued": spec.size,
        "done": spec.size - waiting,
        "stopped": False,
        "behind": [],
        "queue": queue,
        "held": [],
        "again": [],
        "bad": [],
    }
