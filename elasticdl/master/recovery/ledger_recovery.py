"""The ledger of a master that has forgotten the last seconds: all leases come back, and workers claim what is theirs.

What one account does about a claim is in `sample_claims.py`; whose leases and steps those are, here. When to ask
whom, and what to believe, is the gathering's affair (`reclaim_round.py`).
"""

from __future__ import annotations

from elasticdl.master.ledger.dataset_account import Account
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.ledger.shard_types import Holding, Lease
from elasticdl.master.recovery.sample_claims import claim, complete, waiting_of

# Samples [start, end) of an epoch: (epoch, start, end).
EpochRange = tuple[int, int, int]


def reopen(ledger: Ledger, skipped_numbers: int) -> dict[int, Lease]:
    """This is an old snapshot. All leases go back, and are returned: their workers may have done more by now.

    The next leases get numbers so much higher, beyond all that may have been given out since.
    """
    before = {holding.lease_id: holding.lease(account.spec.name) for account, holding in ledger.leases.all()}
    for account in ledger.accounts:
        ledger.leases.void(account)
        account.give_back(account.held.values())
    ledger.requests.void()
    ledger.leases.next_number += skipped_numbers
    return before


def skip_number(ledger: Ledger, lease_id: int) -> None:
    """A lease of this number has been given out: the next ones get higher ones."""
    ledger.leases.next_number = max(ledger.leases.next_number, lease_id + 1)


def claim_done(
    ledger: Ledger, dataset: str, *, epoch: int, start: int, end: int
) -> tuple[int, list[EpochRange]]:
    """A worker has done these samples. Returns how many of them are newly done, and the ranges that turned out to have
    been given out.
    """
    account = _account(ledger, dataset, epoch)
    found, given_out = claim(account, epoch=epoch, start=start, end=end, partly=True)
    account.count(epoch, found)
    return found, [(r.epoch, r.start, r.end) for r in given_out]


def claim_lease(ledger: Ledger, lease: Lease, *, atomic: bool = False) -> tuple[bool, list[EpochRange]]:
    """A worker holds this lease, done up to its position. False: others have, or have done, some of it."""
    account = _account(ledger, lease.dataset, lease.epoch)
    if lease.lease_id in ledger.leases:
        return False, []
    found, given_out = claim(account, epoch=lease.epoch, start=lease.position, end=lease.end, partly=False)
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
        )
        ledger.leases.add(account, holding)
    return found > 0, [(r.epoch, r.start, r.end) for r in given_out]


def _account(ledger: Ledger, dataset: str, epoch: int) -> Account:
    """In the epoch of a claim, or beyond it."""
    account = ledger.accounts[dataset]
    if not account.spec.overlapping and account.epoch < epoch < account.spec.epochs:
        complete_epoch(ledger, dataset, epoch - 1)
        account.advance()
    return account


def complete_epoch(ledger: Ledger, dataset: str, epoch: int) -> None:
    """Somebody has seen the end of this epoch: all of it was done, though not everybody is there to tell."""
    account = ledger.accounts[dataset]
    for holding in [h for h in account.held.values() if h.epoch <= epoch]:
        account.give_back([holding])
        ledger.leases.forget(holding)
    samples = complete(account, min(epoch, account.spec.epochs - 1))
    ledger.steps += -(-samples // account.spec.batch_size)


def give_up_claims(ledger: Ledger, dataset: str, ranges: list[EpochRange]) -> None:
    """Nobody has told of these ranges, as far as they still wait: they count as done again."""
    account = ledger.accounts[dataset]
    for epoch, samples in waiting_of(account, ranges).items():
        account.add_again(epoch, samples)
