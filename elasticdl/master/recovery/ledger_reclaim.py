"""The ledger of a master that lost its journal: leases are requeued, and workers reclaim what they hold and have done.

The ledger was restored from an old snapshot, so it sees as waiting what workers hold or have done since. What they
report is cut out of the queue, or out of the shards that the account believes untouched. Shards are leased in the order
of the epoch, so a shard that a worker has shows that all shards before it were leased too: they go to the queue, for
others to reclaim, and what no worker reclaims is trained again.

When workers report, and which reports count, is decided in `reclaim.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from elasticdl.master.ledger.dataset_account import DatasetAccount
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.ledger.shard_types import Holding, Lease, LedgerError, Remainder

# Samples [start, end) of an epoch: (epoch, start, end).
EpochRange = tuple[int, int, int]


def reopen(ledger: Ledger, skipped_numbers: int) -> dict[int, Lease]:
    """Requeues all leases of an old snapshot, and returns them: their workers may have done more by now.

    The next lease numbers are so much higher, beyond all that may have been leased since.
    """
    before = {holding.lease_id: holding.lease(account.spec.name) for account, holding in ledger.leases.all()}
    for account in ledger.accounts:
        ledger.leases.void(account)
        account.give_back(account.held.values())
    ledger.requests.void()
    ledger.leases.next_number += skipped_numbers
    return before


def skip_number(ledger: Ledger, lease_id: int) -> None:
    """Raises the next lease number above this one, which has been used."""
    ledger.leases.next_number = max(ledger.leases.next_number, lease_id + 1)


def claim_done(
    ledger: Ledger, dataset: str, *, epoch: int, start: int, end: int
) -> tuple[int, list[EpochRange]]:
    """Counts samples that a worker has done. Returns how many are newly done, and the ranges that turned out to have
    been leased.
    """
    account = _account(ledger, dataset, epoch)
    found, given_out = _claim(account, epoch=epoch, start=start, end=end, partly=True)
    account.count(epoch, found)
    return found, [(r.epoch, r.start, r.end) for r in given_out]


def claim_lease(ledger: Ledger, lease: Lease, *, atomic: bool = False) -> tuple[bool, list[EpochRange]]:
    """Renews a lease, done up to its position. False: another worker holds, or has done, some of it."""
    account = _account(ledger, lease.dataset, lease.epoch)
    if lease.lease_id in ledger.leases:
        return False, []
    found, given_out = _claim(account, epoch=lease.epoch, start=lease.position, end=lease.end, partly=False)
    if found:
        holding = Holding(
            lease_id=lease.lease_id,
            worker=lease.worker,
            request_id=0,
            epoch=lease.epoch,
            start=lease.start,
            end=lease.end,
            position=lease.position,
            failures=lease.failures,
            batches=lease.batches,
            atomic=atomic,
            applied=lease.applied,
        )
        ledger.leases.add(account, holding)
    return found > 0, [(r.epoch, r.start, r.end) for r in given_out]


def _account(ledger: Ledger, dataset: str, epoch: int) -> DatasetAccount:
    """The account, advanced to the epoch of a claim if it is behind."""
    account = ledger.accounts[dataset]
    if not account.spec.overlapping and account.epoch < epoch < account.spec.epochs:
        complete_epoch(ledger, dataset, epoch - 1)
        account.advance()
    return account


def complete_epoch(ledger: Ledger, dataset: str, epoch: int) -> None:
    """Counts all of an epoch as done: a worker has seen its end, though not all workers are there to report."""
    account = ledger.accounts[dataset]
    for holding in [h for h in account.held.values() if h.epoch <= epoch]:
        account.give_back([holding])
        ledger.leases.forget(holding)
    samples = _complete(account, min(epoch, account.spec.epochs - 1))
    ledger.steps += -(-samples // account.spec.batch_size)


def count_unclaimed(
    ledger: Ledger, dataset: str, ranges: list[EpochRange], *, may_count_twice: bool = False
) -> None:
    """Counts what is still queued of these ranges as trained again: no worker has reclaimed it. `may_count_twice`: in
    the model, which has not been lost.
    """
    account = ledger.accounts[dataset]
    for epoch, samples in _queued_samples(account, ranges).items():
        account.add_again(epoch, samples)
        if may_count_twice:
            account.twice += samples


def _claim(
    account: DatasetAccount, *, epoch: int, start: int, end: int, partly: bool
) -> tuple[int, list[Remainder]]:
    """Takes [start, end) of an epoch out of the queue. Returns how many samples were queued, and the shards that turned
    out to have been leased before it.

    Without `partly` it is all or nothing, and 0 is returned for nothing.
    """
    if not 0 <= epoch < account.spec.epochs or not 0 <= start < end <= account.spec.size:
        raise LedgerError(f"[{start}, {end}) is no range of epoch {epoch + 1} of {account.spec.name}.")
    given_out = _reach(account, epoch, end)
    queue, found = account.queue, 0
    overlapping: list[tuple[int, Remainder]] = []
    # From the end, which has the shards that have just turned out to be leased. Nothing is queued twice.
    for index, item in zip(range(len(queue) - 1, -1, -1), reversed(queue), strict=True):
        if item.epoch == epoch and item.start < end and start < item.end:
            overlapping.append((index, item))
            found += min(item.end, end) - max(item.start, start)
            if found == end - start:
                break
    if found == 0 or (found < end - start and not partly):
        return 0, given_out
    for index, item in overlapping:
        del queue[index]
        if end < item.end:
            queue.insert(index, replace(item, start=end))
        if item.start < start:
            queue.insert(index, replace(item, end=start))
    return found, given_out


def _reach(account: DatasetAccount, epoch: int, end: int) -> list[Remainder]:
    """Advances the account to where the shard with the sample before `end` has been leased."""
    given_out: list[Remainder] = []
    while account.epoch < epoch:
        given_out += _give_out(account, account.order.size)
        account.advance()
    if epoch == account.epoch:
        given_out += _give_out(account, account.order.index((end - 1) // account.shard_size) + 1)
    return given_out


def _give_out(account: DatasetAccount, place: int) -> list[Remainder]:
    """Requeues all shards before a place of the current epoch's order, as if they had been leased and returned."""
    given_out = []
    while account.cursor < place:
        start = account.order[account.cursor] * account.shard_size
        end = min(start + account.shard_size, account.spec.size)
        account.cursor += 1
        account.issued += end - start
        given_out.append(Remainder(start, end, 0, account.epoch))
    account.queue.extend(given_out)
    return given_out


def _complete(account: DatasetAccount, epoch: int) -> int:
    """Completes all epochs up to this one. Returns the samples newly done.

    Only for data sets whose epochs do not overlap, and while no worker holds a lease of those epochs.
    """
    done = 0
    while account.epoch <= epoch:
        account.queue = deque(r for r in account.queue if r.epoch > account.epoch)
        done += account.spec.size - account.done
        account.cursor = account.order.size
        account.issued = account.done = account.spec.size
        if account.epoch == epoch:
            break
        account.advance()
    return done


def _queued_samples(account: DatasetAccount, ranges: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """Returns how many samples of these disjoint ranges (epoch, start, end) are still queued, by epoch."""
    # Sorted once: there may be thousands of either.
    asked = sorted(ranges)
    queued = sorted((r.epoch, r.start, r.end) for r in account.queue)
    found: dict[int, int] = {}
    place = 0
    for epoch, start, end in asked:
        while place < len(queued) and (queued[place][0], queued[place][2]) <= (epoch, start):
            place += 1
        at = place
        while at < len(queued) and queued[at][0] == epoch and queued[at][1] < end:
            common = min(end, queued[at][2]) - max(start, queued[at][1])
            if common > 0:
                found[epoch] = found.get(epoch, 0) + common
            at += 1
    return found
