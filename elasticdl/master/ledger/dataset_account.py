"""The account of one data set: what is done, held, waiting and untouched in its current epoch.

Shards are taken in the order of a computed permutation, so one cursor separates those leased before from the others.
Every sample of those is done, held by a worker, or in the queue of what came back; the first are only
counted, the others are as many ranges as workers hold. An epoch must be done before the next begins, so that
the earlier ones need no memory at all. That is how the account of 10¹² samples is as small as that of 10³.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from elasticdl.master.ledger.bad_ranges import BadRanges
from elasticdl.master.ledger.permutation import Permutation
from elasticdl.master.ledger.shard_types import DatasetSpec, Holding, LedgerError, Remainder, Returned


class DatasetAccount:
    """The account of one data set. Knows leases by their number, which the ledger assigns."""

    def __init__(self, spec: DatasetSpec) -> None:
        self.spec = spec
        self.bad = BadRanges()
        # Samples that were done and have to be done again, by epoch.
        self.again: dict[int, int] = {}
        self._begin()

    def _begin(self) -> None:
        # The order in force: the spec's, or that of the checkpoint that the account was rolled back to.
        self.shard_size = self.spec.shard_size
        self.shuffle = self.spec.shuffle
        self.seed = self.spec.seed
        self.stopped = False
        self.held: dict[int, Holding] = {}
        self.queue: deque[Remainder] = deque()
        # Samples, in all epochs, that may have been done before, and so count twice in the model.
        self.twice = 0
        # Samples that are not done yet in each earlier epoch, where epochs overlap.
        self.behind: dict[int, int] = {}
        self._enter(0)

    def _enter(self, epoch: int) -> None:
        self.epoch = epoch
        self.cursor = 0
        self.issued = 0
        self.done = 0
        self._set_order()

    def _set_order(self) -> None:
        shards = -(-self.spec.size // self.shard_size)
        self.order = Permutation(shards, self.seed, self.epoch, shuffle=self.shuffle)

    # -- where it stands -------------------------------------------------------------------------------------

    @property
    def untouched(self) -> int:
        """Returns the samples of this epoch that have never been leased."""
        return self.spec.size - self.issued

    @property
    def queued(self) -> int:
        return sum(remainder.end - remainder.start for remainder in self.queue)

    @property
    def in_work(self) -> int:
        return sum(holding.remaining for holding in self.held.values())

    @property
    def left_behind(self) -> int:
        """Samples of earlier epochs that are not done yet."""
        return sum(self.behind.values())

    @property
    def epoch_done(self) -> bool:
        return self.done == self.spec.size and not self.behind

    @property
    def finished(self) -> bool:
        if self.stopped and not self.held:
            return True
        return self.epoch_done and self.epoch == self.spec.epochs - 1

    @property
    def may_advance(self) -> bool:
        if self.epoch + 1 >= self.spec.epochs or self.stopped:
            return False
        if self.spec.overlapping:
            return not self.queue and self.cursor == self.order.size
        return self.epoch_done

    @property
    def available(self) -> bool:
        """There is something to give out now."""
        if self.stopped:
            return False
        if self.may_advance and not self.spec.gated:
            return True
        return bool(self.queue) or self.cursor < self.order.size

    def done_in(self, epoch: int) -> int:
        """Samples passed, bad ones included."""
        if epoch == self.epoch:
            return self.done
        return self.spec.size - self.behind.get(epoch, 0) if 0 <= epoch < self.epoch else 0

    def skipped_in(self, epoch: int) -> int:
        """Bad samples among those passed."""
        if epoch > self.epoch:
            return 0
        bad = self.bad.in_epoch(epoch)
        if self.done_in(epoch) == self.spec.size:
            return sum(b.end - b.start for b in bad)
        return sum(self._passed(b.start, b.end, epoch) for b in bad)

    def skipped_by_epoch(self) -> list[int]:
        """The same of all epochs so far, of which there may be very many."""
        found = self.bad.by_epoch(self.epoch + 1)
        for epoch in (*self.behind, self.epoch):
            found[epoch] = self.skipped_in(epoch)
        return found

    def _passed(self, start: int, end: int, epoch: int) -> int:
        """Returns how many of the samples [start, end) have been passed in an epoch."""
        waiting = sum(_overlap(start, end, low, high) for low, high in self._waiting(epoch))
        if epoch < self.epoch:
            return end - start - waiting
        passed = 0
        for shard in range(start // self.shard_size, -(-end // self.shard_size)):
            if self.order.index(shard) < self.cursor:
                passed += _overlap(start, end, shard * self.shard_size, (shard + 1) * self.shard_size)
        return passed - waiting

    def _waiting(self, epoch: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges of an epoch that were leased and are not done."""
        for holding in self.held.values():
            if holding.epoch == epoch:
                yield holding.position, holding.end
        for remainder in self.queue:
            if remainder.epoch == epoch:
                yield remainder.start, remainder.end

    def to_do(self, most: int) -> list[tuple[int, int]]:
        """Returns the shards of this epoch that are still to be leased, in their order; at most the first so many."""
        found = [(remainder.start, remainder.end) for remainder in self.queue][:most]
        for place in range(self.cursor, min(self.order.size, self.cursor + most - len(found))):
            start = self.order[place] * self.shard_size
            found.append((start, min(start + self.shard_size, self.spec.size)))
        return found

    # -- giving out and taking back --------------------------------------------------------------------------

    def advance(self) -> None:
        if self.done < self.spec.size:
            self.behind[self.epoch] = self.spec.size - self.done
        self._enter(self.epoch + 1)

    def take(self) -> Remainder | None:
        """The next samples to work on, if there are any: what came back first, then by the cursor."""
        if self.stopped:
            return None
        if self.may_advance and not self.spec.gated:
            self.advance()
        if self.queue:
            return self.queue.popleft()
        if self.cursor == self.order.size:
            return None
        start = self.order[self.cursor] * self.shard_size
        end = min(start + self.shard_size, self.spec.size)
        self.cursor += 1
        self.issued += end - start
        return Remainder(start, end, 0, self.epoch)

    def pass_to(self, epoch: int, place: int) -> int:
        """All shards of an epoch before a place in its order are done, and those of the epochs before it; none of them
        was leased. Returns the samples newly done. A place that was passed before changes nothing.
        """
        if not 0 <= epoch < self.spec.epochs or not 0 <= place <= self.order.size:
            raise LedgerError(f"{self.spec.name} has no place {place} in epoch {epoch + 1}.")
        if self.held or self.queue:
            raise LedgerError(f"Shards of {self.spec.name} have been leased: it is not trained in order.")
        done = 0
        while self.epoch < epoch:
            done += self._pass_shards(self.order.size)
            self._enter(self.epoch + 1)
        return done + (self._pass_shards(place) if epoch == self.epoch else 0)

    def _pass_shards(self, place: int) -> int:
        if place <= self.cursor:
            return 0
        samples = (place - self.cursor) * self.shard_size
        # The last shard of the data is a smaller one, wherever in the order it is.
        if self.cursor <= self.order.index(self.order.size - 1) < place:
            samples -= self.order.size * self.shard_size - self.spec.size
        self.cursor = place
        self.issued += samples
        self.done += samples
        return samples

    def starts(self, epoch: int, first: int, count: int) -> list[int]:
        """Returns the starts of the shards at places [first, first + count) of an epoch, as far as there are so
        many.
        """
        order = self.order
        if epoch != self.epoch:
            order = Permutation(self.order.size, self.seed, epoch, shuffle=self.shuffle)
        return [order[place] * self.shard_size for place in range(first, min(first + count, order.size))]

    def progress(self, holding: Holding, position: int, batches: int, *, atomic: bool) -> int:
        """Returns the samples newly done. The lease is forgotten when its end is reached."""
        # Inside an atomic shard a position has no meaning, and none is looked for.
        inside = (atomic or holding.atomic) and position < holding.end
        if not inside and not holding.start <= position <= holding.end:
            raise LedgerError(
                f"Position {position} lies outside of lease {holding.lease_id}, "
                f"samples [{holding.start}, {holding.end}) of {self.spec.name}."
            )
        if not inside and position < holding.position:
            return 0
        holding.batches = max(holding.batches, batches)
        holding.atomic = holding.atomic or atomic
        if inside:
            return 0
        done = position - holding.position
        holding.position = position
        self.count(holding.epoch, done)
        if position == holding.end:
            del self.held[holding.lease_id]
        return done

    def count(self, epoch: int, done: int) -> None:
        """Counts so many more samples of an epoch as done."""
        if epoch == self.epoch:
            self.done += done
        elif done:
            self.behind[epoch] -= done
            if not self.behind[epoch]:
                del self.behind[epoch]

    def give_back(self, holdings: Iterable[Holding], *, failed_lease: int | None = None) -> list[Returned]:
        """Puts the remainders at the front of the queue, the oldest lease's first."""
        remainders = []
        for holding in sorted(holdings, key=lambda holding: holding.lease_id):
            del self.held[holding.lease_id]
            failures = holding.failures + (holding.lease_id == failed_lease)
            remainders.append(
                Remainder(holding.position, holding.end, failures, holding.epoch, holding.applied)
            )
        self.queue.extendleft(reversed(remainders))
        return [self._returned(remainder) for remainder in remainders]

    def forget_failures(self) -> None:
        self.queue = deque(replace(remainder, failures=0) for remainder in self.queue)

    def truncate(self, holding: Holding, end: int) -> Returned | None:
        """Takes [end, holding.end) back; the lease is forgotten if nothing remains to do in it."""
        if end < holding.position:
            raise LedgerError(
                f"Lease {holding.lease_id} of {self.spec.name} cannot end at {end}: "
                f"it is done up to {holding.position}."
            )
        if end >= holding.end:
            return None
        remainder = Remainder(end, holding.end, holding.failures, holding.epoch, holding.applied)
        self.queue.appendleft(remainder)
        holding.end = end
        if not holding.remaining:
            del self.held[holding.lease_id]
        return self._returned(remainder)

    def requeue_partial(self, holding: Holding, position: int, buckets: str) -> int:
        """Requeues the batch that ends at this position of a lease, which only some buckets of the parameter servers
        (bits in hex) have applied, so that another worker sends it to the other buckets; it is done if there are none.
        Returns the samples newly done.
        """
        applied = f"{int(holding.applied or '0', 16) | int(buckets, 16):0{len(buckets)}x}"
        start, holding.position = holding.position, position
        if position == holding.end:
            del self.held[holding.lease_id]
        if applied == "f" * len(applied):
            self.count(holding.epoch, position - start)
            return position - start
        self.queue.appendleft(Remainder(start, position, holding.failures, holding.epoch, applied))
        return 0

    def _returned(self, remainder: Remainder) -> Returned:
        return Returned(
            dataset=self.spec.name,
            epoch=remainder.epoch,
            start=remainder.start,
            end=remainder.end,
            failures=remainder.failures,
        )

    # -- going back ------------------------------------------------------------------------------------------

    def add_again(self, epoch: int, samples: int) -> None:
        if samples:
            self.again[epoch] = self.again.get(epoch, 0) + samples

    def doubt(self, holding: Holding) -> None:
        """Counts the unreported part of a lease as possibly done: it may be done again."""
        if holding.is_doubtful:
            return
        holding.is_doubtful = True
        self.add_again(holding.epoch, holding.remaining)
        self.twice += holding.remaining

    def reset(self) -> None:
        """Back to the very beginning; what was done will be done again."""
        for epoch in range(self.epoch + 1):
            self.add_again(epoch, self.done_in(epoch))
        self._begin()

    def rollback(self, then: DatasetAccount) -> None:
        """To where the account was in a checkpoint; what was done since will be done again.

        The order of the checkpoint stays in force. Number of epochs and the like are those of now, so that a
        finished training can be given more epochs.
        """
        if then.spec.size != self.spec.size:
            raise LedgerError(
                f"The checkpoint was made with {then.spec.size} samples in the data set {self.spec.name}; "
                f"now there are {self.spec.size}."
            )
        if then.epoch >= self.spec.epochs:
            raise LedgerError(
                f"The checkpoint is in epoch {then.epoch + 1} of {self.spec.name}, beyond the "
                f"{self.spec.epochs} asked for."
            )
        for epoch in range(min([then.epoch, *then.behind]), self.epoch + 1):
            self.add_again(epoch, max(0, self.done_in(epoch) - then.done_in(epoch)))
        # A new job that goes on from a checkpoint also takes over what had to be done again before it.
        for epoch, samples in then.again.items():
            self.again[epoch] = max(self.again.get(epoch, 0), samples)
        self.bad.merge(then.bad)
        self.shard_size, self.shuffle, self.seed = then.shard_size, then.shuffle, then.seed
        self.epoch, self.cursor, self.issued, self.done = then.epoch, then.cursor, then.issued, then.done
        # Within a job a stop before the checkpoint stays; another job that goes on from it has not been
        # stopped.
        self.stopped = self.stopped and then.stopped
        # The model is that of the checkpoint.
        self.twice = then.twice
        self.queue, self.held, self.behind = then.queue, then.held, then.behind
        self._set_order()
        self.give_back(self.held.values())

    # -- on disk ---------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": self.spec.to_json(),
            "order": [self.shard_size, self.shuffle, self.seed],
            "epoch": self.epoch,
            "cursor": self.cursor,
            "issued": self.issued,
            "done": self.done,
            "stopped": self.stopped,
            "behind": [[epoch, samples] for epoch, samples in self.behind.items()],
            "queue": [remainder.to_json() for remainder in self.queue],
            "held": [holding.to_json() for holding in self.held.values()],
            "again": [[epoch, samples] for epoch, samples in self.again.items()],
            "twice": self.twice,
            "bad": self.bad.to_json(),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> DatasetAccount:
        account = cls(DatasetSpec(**document["spec"]))
        account.shard_size, account.shuffle, account.seed = document["order"]
        account._enter(document["epoch"])
        account.cursor = document["cursor"]
        account.issued = document["issued"]
        account.done = document["done"]
        account.stopped = document["stopped"]
        account.behind = dict(document["behind"])
        account.queue.extend(Remainder(*remainder) for remainder in document["queue"])
        for holding in map(Holding.from_json, document["held"]):
            account.held[holding.lease_id] = holding
        account.again = dict(document["again"])
        # Not in the first ledgers.
        account.twice = document.get("twice", 0)
        account.bad = BadRanges.from_json(document["bad"])
        return account

    # -- trust, but check ------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Lists contradictions in the account; none, unless there is a bug in this code."""
        found = []
        total = self.done + self.in_work + self.queued + self.untouched - self.left_behind
        if total != self.spec.size:
            found.append(
                f"{self.spec.name}: {self.done} done + {self.in_work} held + {self.queued} queued + "
                f"{self.untouched} untouched - {self.left_behind} earlier samples are {total}, "
                f"not {self.spec.size}"
            )
        for epoch in (*self.behind, self.epoch):
            waiting = sorted(self._waiting(epoch))
            missing = sum(high - low for low, high in waiting)
            if epoch < self.epoch and missing != self.behind[epoch]:
                found.append(f"{self.spec.name}: {missing} samples of epoch {epoch + 1} wait to be done")
            end = 0
            for low, high in waiting:
                if not end <= low < high <= self.spec.size:
                    found.append(f"{self.spec.name}: samples [{low}, {high}) are leased twice, or missing")
                end = max(end, high)
        return found


def _overlap(a: int, b: int, c: int, d: int) -> int:
    """Returns how many numbers [a, b) and [c, d) have in common."""
    return max(0, min(b, d) - max(a, c))
