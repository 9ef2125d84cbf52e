"""The data sets that training programs announce and fetch shards of: commands of the state, like those beside it.

A program of the user's own says how large its data is, in which batches and how many epochs it wants it, and gets
shards. Every worker says so; the first one counts. What the others say must not contradict it in the size: then two
workers see different files, and indices mean different samples to them.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from typing import Any

from elasticdl.master.commands.programs import (
    FailShard,
    OpenDataset,
    ResetDataset,
    RestoreShards,
    ReturnLeases,
    RevokeLeases,
)
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.ledger.ledger import DatasetSpec, Lease, Ledger, LedgerError, LostLease, ShardGivesUp
from elasticdl.master.lifecycle.dataset_sizes import DatasetSizes
from elasticdl.master.lifecycle.job_outcome import JobOutcome
from elasticdl.master.lifecycle.roster import TRAINERS, JobFailure, Roster
from elasticdl.master.settings import JobSettings

# A checkpoint lists up to so many shards for human readers; restoring it does not need the list.
_SHARDS_LISTED = 10_000


class ProgramDatasets:
    def __init__(
        self,
        *,
        settings: JobSettings,
        ledger: Ledger,
        roster: Roster,
        sizes: DatasetSizes,
        outcome: JobOutcome,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._roster = roster
        self._sizes = sizes
        self._outcome = outcome
        self.announced: dict[str, DatasetAnnouncement] = {}

    # -- commands --------------------------------------------------------------------------------------------

    def open(self, command: OpenDataset) -> None:
        new = command.announcement
        known = self.announced.get(new.name)
        if known is None:
            settings = self._settings
            self._ledger.add(new.spec(seed=settings.seed, max_shard_failures=settings.max_shard_failures))
            self.announced[new.name] = new
            self._sizes.announce(new.name, new.samples)
        elif known.size != new.size:
            raise LedgerError(
                f"The data set {new.name} has {new.size} samples for one worker and {known.size} for another. "
                "All workers must see the same files."
            )

    def fail_shard(self, command: FailShard) -> None:
        """Releases a shard that the program failed on. It is retried, up to a limit."""
        try:
            self._ledger.release(command.lease_id, failed=True)
        except LostLease:
            return
        except ShardGivesUp as gives_up:
            self._outcome.fail(JobFailure(message=f"{gives_up}\n{command.message}"), "")

    def return_leases(self, command: ReturnLeases) -> None:
        """A worker has fetched these ahead and does not use them. What is not its own any more stays where it is."""
        # Each goes to the front of the queue, so the first goes last.
        for lease_id in sorted(command.lease_ids, reverse=True):
            lease = self._ledger.lease_of(lease_id)
            if lease is not None and lease.worker == command.worker:
                self._ledger.release(lease_id)

    def revoke_leases(self, command: RevokeLeases) -> None:
        """A worker that waits for a shard does not work on those that it was given and cannot have got."""
        self._ledger.release_worker(command.worker)

    def reset(self, command: ResetDataset) -> None:
        self._ledger.reset_dataset(command.dataset)

    def restore_shards(self, command: RestoreShards) -> None:
        """Continues where a checkpoint of shards was taken. Later leases are void."""
        document = json.loads(command.content)
        name = document["dataset_name"]
        announced = self.announced.get(name)
        if announced is None:
            raise LedgerError(f"The checkpoint is of the data set {name}, which is not announced.")
        if "account" not in document:
            document["account"] = _account_of_lists(document, self._ledger.spec(name))
        others = self._ledger.snapshot()
        others["datasets"][name] = document["account"]
        # Only this data set goes back: leases of the others stay as they are.
        self._ledger.restore_dataset(name, Ledger.restore(others))

    # -- questions -------------------------------------------------------------------------------------------

    def may_end(self, dataset: str, worker: str) -> bool:
        """This worker need not wait for a shard: there will be none, or none before it is done with what it has."""
        if self._outcome.result or self._outcome.stop_reason or self._ledger.finished(dataset):
            return True
        node = self._roster.nodes.get(worker)
        if node is None or not node.alive or node.goes:
            return True
        # It may sit on the first half of a batch whose second half would come with the next shard.
        return any(lease.dataset == dataset for lease in self._ledger.held_by(worker))

    def share(self, dataset: str) -> int:
        """Returns how many shards a worker may prefetch, so that enough are left for other workers at the end."""
        ledger = self._ledger
        left = (ledger.remaining(dataset) - ledger.samples_held(dataset)) // ledger.spec(dataset).shard_size
        workers = sum(len(self._roster.alive(role)) for role in TRAINERS)
        return max(1, left // (2 * max(1, workers)))

    def finished(self) -> bool:
        return all(self._ledger.finished(name) for name in self.announced)

    def indices(self, lease: Lease) -> list[int]:
        """The order of the records of a shard, where the program wants one."""
        if not self.announced[lease.dataset].shuffle_records:
            return []
        order = list(range(lease.start, lease.end))
        random.Random(f"{self._settings.seed} {lease.epoch} {lease.start}").shuffle(order)
        return order

    def checkpoint(self, dataset: str) -> str:
        """Returns the position in a data set in the form of the public package; `account` restores it."""
        announced = self.announced.get(dataset)
        if announced is None:
            raise LedgerError(f"The data set {dataset} is not announced.")
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
        self.announced.clear()
        self.announced.update((item["name"], DatasetAnnouncement(**item)) for item in snapshot)


def _account_of_lists(document: dict[str, Any], spec: DatasetSpec) -> dict[str, Any]:
    """The account that the lists of a checkpoint amount to: one that another master made has nothing else."""
    epoch = max(0, int(document["current_epoch"]) - 1)
    queue = [[int(start), int(end), 0, epoch] for start, end in [*document["doing"], *document["todo"]]]
    waiting = sum(item[1] - item[0] for item in queue)
    return {
        "spec": spec.to_json(),
        "order": [spec.shard_size, spec.shuffle, spec.seed],
        "epoch": epoch,
        # All of this epoch counts as leased; requeued shards wait in the queue.
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
