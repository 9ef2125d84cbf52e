"""The ledger: exactly which samples are done, being done and still to do, for every data set of a job.

It is a plain state machine. It has no clock, reads nothing, and takes its only randomness from seeds, so the
same calls in the same order lead to the same state and the same answers. The master relies on it: it writes
the calls to its journal, and after a kill makes them again. Two rules serve that:

- A call that raises has changed nothing, and need not be written down. Neither need a `lease` that gave
  nothing.
- Calls that a worker may repeat are safe to repeat: `lease` by its request number, `progress` because it
  tells a position and not a count, `truncate` because it tells an end and not an amount.

Failure modes: a worker that dies is `credit`ed with what others know of its work and `release_worker`ed, and only
the rest is done again. A worker that was thought dead and is not gets `LostLease` for whatever it reports on what
it lost. When the state of the training itself is lost, `rollback` goes to a checkpoint's ledger, and all leases are
void.

How one data set is accounted for is in `dataset_account.py`, who holds what in `lease_table.py`; the words are in
`shard_types.py`. What a recovery does with the ledger is in `recovery/ledger_reclaim.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from elasticdl.master.ledger.bad_ranges import BadRange
from elasticdl.master.ledger.dataset_account import DatasetAccount
from elasticdl.master.ledger.dataset_accounts import DatasetAccounts
from elasticdl.master.ledger.lease_table import LeaseTable
from elasticdl.master.ledger.request_cache import RequestCache
from elasticdl.master.ledger.shard_splitter import propose
from elasticdl.master.ledger.shard_types import (
    DatasetSpec,
    Holding,
    Lease,
    LedgerError,
    LostLease,
    Returned,
    ShardGivesUp,
    SplitProposal,
)

__all__ = [
    "DatasetSpec",
    "Lease",
    "Ledger",
    "LedgerError",
    "LostLease",
    "Returned",
    "ShardGivesUp",
    "SplitProposal",
]

_FORMAT = 2


class Ledger:
    """All data sets of a job, and the workers' leases on them."""

    def __init__(self) -> None:
        self.accounts = DatasetAccounts()
        self.leases = LeaseTable()
        self.requests = RequestCache()
        # All batches of all data sets so far.
        self.steps = 0

    # -- data sets -------------------------------------------------------------------------------------------

    def add(self, spec: DatasetSpec) -> None:
        """Opens the account of a data set. The same spec again changes nothing."""
        self.accounts.add(spec)

    def remove(self, dataset: str) -> None:
        """Forgets a data set, its leases and its place in the audit."""
        self.leases.void(self.accounts[dataset])
        self.accounts.remove(dataset)
        self.requests.forget_dataset(dataset)

    def stop(self, dataset: str) -> None:
        """Gives nothing out any more: the data set is finished once what is held is done or released."""
        self.accounts[dataset].stopped = True

    def open_next_epoch(self, dataset: str) -> None:
        account = self.accounts[dataset]
        if not account.may_advance:
            raise LedgerError(
                f"The next epoch of {dataset} cannot begin: {account.done} of {account.spec.size} samples of "
                f"epoch {account.epoch + 1} of {account.spec.epochs} are done"
                f"{', and it is stopped' if account.stopped else ''}."
            )
        account.advance()

    # -- work ------------------------------------------------------------------------------------------------

    def lease(self, dataset: str, worker: str, count: int, request_id: int) -> list[Lease]:
        """Up to `count` shards for a worker: what came back first, then the next ones of the epoch.

        The same request again gives the same leases, as far as they are still held. If all of them were taken
        away from the worker before it made any use of them, the answer got lost, and it is given others. An
        empty answer (nothing to do at the moment, or never again) is not remembered: ask again under the same
        number.
        """
        account = self.accounts[dataset]
        if count < 1:
            raise LedgerError(f"{worker} asked for {count} shards of {dataset}.")
        before = self.requests.repeated(worker, dataset, request_id)
        if before is not None:
            still = [account.held[i].lease(dataset) for i in before.leases if i in account.held]
            if still or before.used:
                return still
        leases: list[Lease] = []
        while len(leases) < count and (remainder := account.take()) is not None:
            leases.append(self.leases.give(account, remainder, worker=worker, request_id=request_id))
        if leases:
            self.requests.remember(worker, dataset, request_id, [lease.lease_id for lease in leases])
        return leases

    def progress(
        self, lease_id: int, position: int, batches: int, worker: str, *, atomic: bool = False
    ) -> int:
        """The samples of the lease before `position` are done. Returns how many of them are newly so.

        `batches` is the number of batches that brought it there since it was leased. With `atomic` only the
        end of the lease counts as a position.
        """
        account, holding = self.leases.find(lease_id, worker)
        batches_before = holding.batches
        done = account.progress(holding, position, batches, atomic=atomic)
        self.steps += holding.batches - batches_before
        self.requests.use(worker, account.spec.name, holding.request_id)
        if lease_id not in account.held:
            self.leases.forget(holding)
        return done

    def credit(self, dataset: str, worker: str, *, lease_id: int, position: int, batches: int) -> int:
        """A worker that is no more had come to this position of that lease. Returns the samples newly done.

        A worker gets leases with growing numbers, and works on those of a data set in that order. So what it held
        with lower ones is done, though it could not say so any more. A lease that is not its own stays whose it is.
        A position at the start of a lease, as in one without order inside, says nothing of the lease itself: what it
        did there is done again, and may count twice.
        """
        account = self.accounts[dataset]
        done = 0
        for other, holding in self.leases.held_by(worker):
            if other is not account or holding.lease_id > lease_id:
                continue
            if holding.lease_id < lease_id:
                reached = holding.end
                made = holding.batches + -(-holding.remaining // account.spec.batch_size)
            else:
                reached, made = min(position, holding.end), batches
            if reached > holding.position:
                done += self.progress(holding.lease_id, reached, made, worker)
            elif made and reached == holding.start:
                account.doubt(holding)
        return done

    def credit_partial(
        self, dataset: str, worker: str, *, lease_id: int, position: int, batches: int, buckets: str
    ) -> None:
        """A worker that is no more ended in the middle of a push: these buckets of the parameter servers (bits in hex)
        have had the batch that brought it to this position, and the others have not.

        After `credit`, with the batch before. Without order inside the lease it is unknown which samples the batch
        had: all that is left of the lease is trained again, and may count twice.
        """
        account = self.accounts[dataset]
        held = {
            holding.lease_id: holding for other, holding in self.leases.held_by(worker) if other is account
        }
        holding = held.get(lease_id)
        if holding is None:
            return
        # A batch lies in one lease, so those before it are done.
        self.credit(dataset, worker, lease_id=lease_id, position=holding.position, batches=0)
        reached = min(position, holding.end)
        if reached <= holding.position:
            account.doubt(holding)
            return
        done = account.requeue_partial(holding, reached, buckets)
        if done:
            self.steps += max(0, batches - holding.batches)
        if lease_id not in account.held:
            self.leases.forget(holding)

    def pass_shards(self, dataset: str, *, epoch: int, place: int, steps: int) -> int:
        """Counts all shards before a place as done, for data that all workers go through together, in order.

        Returns the samples newly done; `steps` is how many steps brought the training there. Safe to repeat.
        """
        done = self.accounts[dataset].pass_to(epoch, place)
        if done:
            self.steps = steps
        return done

    def doubt(self, dataset: str, worker: str) -> None:
        """Requeues the leases of an ended worker that may have done more than it has reported. Their remainder
        may count twice.
        """
        account = self.accounts[dataset]
        for other, holding in self.leases.held_by(worker):
            if other is account:
                account.doubt(holding)

    def release(self, lease_id: int, *, failed: bool = False) -> Returned:
        """Takes a lease from its worker. `failed`: the program raised an error on it (see `ShardGivesUp`)."""
        account, holding = self.leases.find(lease_id)
        return self._give_back(account, [holding], lease_id if failed else None)[0]

    def release_worker(self, worker: str, *, failed_lease: int | None = None) -> list[Returned]:
        """Takes all leases from a worker; `failed_lease` is the one that its program raised an error on.

        To be killed is no failure. Too many failures raise `ShardGivesUp`, after everything has been taken
        back: the one exception here that does not leave the ledger as it was.
        """
        datasets: dict[str, list[Holding]] = {}
        for account, holding in self.leases.held_by(worker):
            datasets.setdefault(account.spec.name, []).append(holding)
        # The failed one's data set last, as it may raise.
        last = self.leases.account_of(failed_lease) if failed_lease is not None else None
        returned = []
        for dataset, holdings in sorted(datasets.items(), key=lambda item: self.accounts[item[0]] is last):
            returned += self._give_back(self.accounts[dataset], holdings, failed_lease)
        return returned

    def _give_back(
        self, account: DatasetAccount, holdings: list[Holding], failed: int | None
    ) -> list[Returned]:
        for holding in holdings:
            self.leases.forget(holding)
        returned = account.give_back(holdings, failed_lease=failed)
        for holding, what in zip(holdings, returned, strict=True):
            if holding.lease_id == failed and what.failures > account.spec.max_shard_failures:
                raise ShardGivesUp(what)
        return returned

    def forget_worker(self, worker: str, *, failed_lease: int | None = None) -> list[Returned]:
        """Releases a worker that will not return: its request numbers are removed too."""
        try:
            return self.release_worker(worker, failed_lease=failed_lease)
        finally:
            self.requests.forget_worker(worker)

    def split(
        self, dataset: str, idle_worker: str, margin_batches: int = 2, *, exclude: Collection[int] = ()
    ) -> SplitProposal | None:
        """Proposes shards that another worker gives to an idle one, when nothing else is left in this epoch.

        Changes nothing. `exclude`: leases whose owners have been asked already, and have not answered.
        """
        account = self.accounts[dataset]
        if account.stopped or account.available:
            return None
        return propose(
            account.held.values(),
            dataset=dataset,
            batch_size=account.spec.batch_size,
            idle_worker=idle_worker,
            margin_batches=margin_batches,
            exclude=exclude,
        )

    def truncate(self, lease_id: int, worker: str, end: int) -> Returned | None:
        """The owner gives up its lease from `end` on. An end beyond the present one refuses (or repeats)."""
        account, holding = self.leases.find(lease_id, worker)
        returned = account.truncate(holding, end)
        if lease_id not in account.held:
            self.leases.forget(holding)
        return returned

    def forget_failures(self) -> None:
        """Shards that the program has failed on may fail again, as often as any other."""
        for account in self.accounts:
            account.forget_failures()

    # -- what cannot be done, and what must be done again ----------------------------------------------------

    def mark_bad(
        self, dataset: str, start: int, end: int, where: str, reason: str, *, epoch: int | None = None
    ) -> int:
        """Samples that cannot be read in this epoch. Returns how many were not known to be bad before.

        They are still passed by position, like all others. To be called before the progress that passes them,
        which may end the epoch.
        """
        self.check_range(dataset, start, end)
        account = self.accounts[dataset]
        return account.bad.mark(
            start, end, epoch=account.epoch if epoch is None else epoch, where=where, reason=reason
        )

    def check_range(self, dataset: str, start: int, end: int) -> None:
        """Raises `LedgerError` if these are no samples of the data set."""
        size = self.accounts[dataset].spec.size
        if not 0 <= start < end <= size:
            raise LedgerError(f"[{start}, {end}) is no range of the {size} samples of {dataset}.")

    def reset_dataset(self, dataset: str) -> None:
        """Back to the beginning of the first epoch; leases are void, what was done will be done again."""
        account = self.accounts[dataset]
        self.leases.void(account)
        account.reset()

    def rollback(self, snapshot: dict[str, Any] | None) -> None:
        """To the ledger of a checkpoint: all leases are void, what was done since will be done again.

        None is the checkpoint of a job that has not begun. So a data set that a checkpoint does not know
        is reset; one that only the checkpoint knows stays unknown. Numbers of leases and requests go on
        growing from where they are. On a new ledger this takes over the progress of another job, without its
        workers.

        What is done again is the difference of two counts, so it is exact for a checkpoint of this history.
        For one that an earlier rollback went back behind it is not; what is done and to do always is.
        """
        then = Ledger.restore(snapshot) if snapshot is not None else Ledger()
        self.accounts.roll_back(then.accounts)
        self.leases.void_all()
        self.leases.next_number = max(self.leases.next_number, then.leases.next_number)
        self.requests.void()
        self.steps = then.steps

    def restore_dataset(self, dataset: str, then: Ledger) -> None:
        """Rolls back one data set alone."""
        before = self.accounts[dataset]
        self.accounts.roll_back_one(dataset, then.accounts)
        self.leases.void(before)
        self.requests.forget_dataset(dataset)

    # -- questions -------------------------------------------------------------------------------------------

    def datasets(self) -> list[str]:
        return self.accounts.names

    def spec(self, dataset: str) -> DatasetSpec:
        return self.accounts[dataset].spec

    def epoch(self, dataset: str) -> int:
        """The newest one, counted from 0."""
        return self.accounts[dataset].epoch

    def epochs_begun(self, dataset: str) -> int:
        """Returns the number of epochs of which shards were leased."""
        account = self.accounts[dataset]
        return account.epoch + (account.issued > 0)

    def epoch_done(self, dataset: str) -> bool:
        """All samples of the current epoch are done."""
        return self.accounts[dataset].epoch_done

    def finished(self, dataset: str) -> bool:
        """Whether no shard will be leased any more, and no lease can still be done."""
        return self.accounts[dataset].finished

    def stopped(self, dataset: str) -> bool:
        return self.accounts[dataset].stopped

    def done(self, dataset: str, epoch: int) -> int:
        """Samples passed in an epoch, bad ones included."""
        return self.accounts[dataset].done_in(epoch)

    def samples_done(self, dataset: str) -> int:
        """Samples passed in all epochs so far."""
        account = self.accounts[dataset]
        return account.epoch * account.spec.size + account.done - account.left_behind

    def skipped(self, dataset: str, epoch: int | None = None) -> int:
        """Bad samples among those passed in an epoch, or else all different ones ever met."""
        account = self.accounts[dataset]
        return account.bad.samples if epoch is None else account.skipped_in(epoch)

    def skipped_by_epoch(self, dataset: str) -> list[int]:
        """Bad samples among those passed, in each epoch so far."""
        return self.accounts[dataset].skipped_by_epoch()

    def again(self, dataset: str, epoch: int) -> int:
        """Samples of an epoch that had to be done once more."""
        return self.accounts[dataset].again.get(epoch, 0)

    def twice(self, dataset: str) -> int:
        """Samples of all epochs that may count twice in the model: more than these do not."""
        return self.accounts[dataset].twice

    def again_epochs(self, dataset: str) -> list[int]:
        """The epochs of which something had to be done once more."""
        return sorted(self.accounts[dataset].again)

    def bad_ranges(self, dataset: str) -> list[BadRange]:
        return list(self.accounts[dataset].bad)

    def remaining(self, dataset: str, epoch: int | None = None) -> int:
        """Samples still to pass: in an epoch, or else in all of them; only those in work if it is stopped."""
        account = self.accounts[dataset]
        if epoch is not None:
            return account.spec.size - account.done_in(epoch)
        if account.stopped:
            return account.in_work
        return (account.spec.epochs - account.epoch) * account.spec.size - account.done + account.left_behind

    def leasable(self, dataset: str) -> bool:
        """A new request would get something now."""
        return self.accounts[dataset].available

    def answered(self, dataset: str, worker: str, request_id: int) -> bool:
        """The request was made before, and would get what it got then, as far as it is still held."""
        account = self.accounts[dataset]
        before = self.requests.repeated(worker, dataset, request_id)
        return before is not None and any(i in account.held for i in before.leases)

    @property
    def next_lease(self) -> int:
        """Returns the number of the next lease; smaller ones have been used."""
        return self.leases.next_number

    def lease_of(self, lease_id: int) -> Lease | None:
        """A lease that a worker holds."""
        account = self.leases.account_of(lease_id)
        return None if account is None else account.held[lease_id].lease(account.spec.name)

    def to_do(self, dataset: str, most: int) -> list[tuple[int, int]]:
        """Returns the shards of this epoch that are still to be leased, in their order; at most the first so many."""
        return self.accounts[dataset].to_do(most)

    def place(self, dataset: str) -> tuple[int, int]:
        """Returns the epoch and the place in its order up to which shards have been leased or passed."""
        account = self.accounts[dataset]
        return account.epoch, account.cursor

    def order(self, dataset: str, *, epoch: int, first: int, count: int) -> list[int]:
        """Returns the starts of the shards at places [first, first + count) of an epoch."""
        account = self.accounts[dataset]
        if not 0 <= epoch < account.spec.epochs or first < 0:
            raise LedgerError(f"{dataset} has no place {first} in epoch {epoch + 1}.")
        return account.starts(epoch, first, count)

    def held(self, dataset: str) -> list[Lease]:
        return [holding.lease(dataset) for holding in self.accounts[dataset].held.values()]

    def samples_held(self, dataset: str) -> int:
        """Samples that are leased and not done."""
        return sum(holding.remaining for holding in self.accounts[dataset].held.values())

    def is_leased(self, lease_id: int) -> bool:
        """Whether a worker holds it."""
        return lease_id in self.leases

    def held_by(self, worker: str) -> list[Lease]:
        """Oldest first."""
        return [holding.lease(account.spec.name) for account, holding in self.leases.held_by(worker)]

    def check(self) -> list[str]:
        """Lists contradictions in the accounts; there should be none. For tests, and for the audit."""
        problems = [problem for account in self.accounts for problem in account.problems()]
        if not self.leases.agree_with(self.accounts):
            problems.append("leases, data sets and workers do not agree on who holds what")
        return problems

    # -- on disk ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything, as a small JSON document."""
        return {
            "format": _FORMAT,
            "next_lease": self.leases.next_number,
            "steps": self.steps,
            "datasets": self.accounts.to_json(),
            "requests": self.requests.to_json(),
        }

    def load(self, snapshot: dict[str, Any]) -> None:
        """Becomes the ledger that `snapshot` was taken of."""
        then = Ledger.restore(snapshot)
        self.accounts, self.leases, self.requests = then.accounts, then.leases, then.requests
        self.steps = then.steps

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> Ledger:
        """The ledger that `snapshot` was taken of, leases and all."""
        if snapshot.get("format") != _FORMAT:
            raise LedgerError(
                f"This is no ledger that this version can read (format {snapshot.get('format')})."
            )
        ledger = cls()
        try:
            ledger.steps = snapshot["steps"]
            ledger.accounts = DatasetAccounts.from_json(snapshot["datasets"])
            ledger.requests = RequestCache.from_json(snapshot["requests"])
            ledger.leases = LeaseTable.held_in(ledger.accounts, next_number=snapshot["next_lease"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"This is no ledger: {error!r}.") from error
        return ledger
