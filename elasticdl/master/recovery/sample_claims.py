"""What workers tell of samples that an account has forgotten: taken out of what waits to be given out.

A master that comes back from an old snapshot sees as waiting what workers hold, or have done since. What they say is
claimed here: cut out of the queue, or out of the shards that the account believes untouched. Shards are given out in
the order of the epoch, so one that somebody has shows that all those before it were given out too: they go to the
queue, for others to claim, and what of them nobody claims is done again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from elasticdl.master.ledger.dataset_account import Account
from elasticdl.master.ledger.shard_types import LedgerError, Remainder


def claim(account: Account, *, epoch: int, start: int, end: int, partly: bool) -> tuple[int, list[Remainder]]:
    """Takes [start, end) of an epoch out of what waits. Returns how many samples waited, and the shards that turned
    out to have been given out before it.

    Without `partly` it is all or nothing, and 0 is returned for nothing.
    """
    if not 0 <= epoch < account.spec.epochs or not 0 <= start < end <= account.spec.size:
        raise LedgerError(f"[{start}, {end}) is no range of epoch {epoch + 1} of {account.spec.name}.")
    given_out = _reach(account, epoch, end)
    queue, found = account.queue, 0
    overlapping: list[tuple[int, Remainder]] = []
    # From the end, where those are that have only now turned out to be given out. Nothing waits twice.
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
            queue.insert(index, Remainder(end, item.end, item.failures, epoch))
        if item.start < start:
            queue.insert(index, Remainder(item.start, start, item.failures, epoch))
    return found, given_out


def _reach(account: Account, epoch: int, end: int) -> list[Remainder]:
    """Moves the account to where the shard with the sample before `end` has been given out."""
    given_out: list[Remainder] = []
    while account.epoch < epoch:
        given_out += _give_out(account, account.order.size)
        account.advance()
    if epoch == account.epoch:
        given_out += _give_out(account, account.order.index((end - 1) // account.shard_size) + 1)
    return given_out


def _give_out(account: Account, place: int) -> list[Remainder]:
    """All shards before a place of the current epoch's order, as if they had come back at once."""
    given_out = []
    while account.cursor < place:
        start = account.order[account.cursor] * account.shard_size
        end = min(start + account.shard_size, account.spec.size)
        account.cursor += 1
        account.issued += end - start
        given_out.append(Remainder(start, end, 0, account.epoch))
    account.queue.extend(given_out)
    return given_out


def complete(account: Account, epoch: int) -> int:
    """All epochs up to this one are done: the next has begun, which it does only then. Returns the samples newly done.

    Only for data sets whose epochs do not overlap, and while nobody holds anything of those epochs.
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


def waiting_of(account: Account, ranges: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """How many samples of these ranges (epoch, start, end), which share none, still wait; by epoch."""
    # Sorted once, so that thousands of either cost nothing worth mentioning.
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
