"""The ledger: exactly which samples are done, being done and still to do, for every data set of a job.

It is a plain state machine. It has no clock, reads nothing, and takes its only randomness from seeds, so the
same calls in the same order lead to the same state and the same answers. The master relies on it: it writes
the calls to its journal, and after a kill makes them again. Two rules serve that:

- A call that raises has changed nothing, and need not be written down. Neither need a `lease` that gave
  nothing.
- Calls that a worker may repeat are safe to repeat: `lease` by its request number, `progress` because it
  tells a position and not a count, `truncate` because it tells an end and not an amount.

Failure modes: a worker that dies is `release_worker`ed, and only what it had not reported is done again. A
worker that was thought dead and is not gets `LostLease` for whatever it reports on what it lost. When the
state of the training itself is lost, `rollback` goes to a checkpoint's ledger, and all leases are void.

How one data set is accounted for is in `account.py`; the words are in `shards.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from elasticdl.master.account import Account
from elasticdl.master.badranges import BadRange
from elasticdl.master.claims import claim, complete, waiting_of
from elasticdl.master.requests import Requests
from elasticdl.master.shards import (
    DatasetSpec,
    Holding,
    Lease,
    LedgerError,
    LostLease,
    Returned,
    ShardGivesUp,
    SplitProposal,
)
from elasticdl.master.splitting import propose

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
        self._accounts: dict[str, Account] = {}
        self._next_lease = 1
        self._leases: dict[int, Account] = {}
        self._workers: dict[str, dict[int, Account]] = {}
        self._requests = Requests()
        self._steps = 0

    # -- data sets -------------------------------------------------------------------------------------------

    def add(self, spec: DatasetSpec) -> None:
        """Opens the account of a data set. The same spec again changes nothing."""
        known = self._accounts.get(spec.name)
        if known is None:
            self._accounts[spec.name] = Account(spec)
        elif known.spec != spec:
            raise LedgerError(
                f"There are two accounts of the data set {spec.name}: {known.spec.differences(spec)}."
            )

    def remove(self, dataset: str) -> None:
        """Forgets a data set, its leases and its place in the audit."""
        self._void(self._account(dataset))
        del self._accounts[dataset]
        self._requests.forget_dataset(dataset)

    def stop(self, dataset: str) -> None:
        """Gives nothing out any more: the data set is finished once what is held is done or released."""
        self._account(dataset).stopped = True

    def open_next_epoch(self, dataset: str) -> None:
        account = self._account(dataset)
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
        account = self._account(dataset)
        if count < 1:
            raise LedgerError(f"{worker} asked for {count} shards of {dataset}.")
        before = self._requests.repeated(worker, dataset, request_id)
        if before is not None:
            still = [self._lease(account, account.held[i]) for i in before.leases if i in account.held]
            if still or before.used:
                return still
        leases: list[Lease] = []
        while len(leases) < count and (remainder := account.take()) is not None:
            holding = Holding(
                lease_id=self._next_lease,
                worker=worker,
                request_id=request_id,
                epoch=remainder.epoch,
                start=remainder.start,
                end=remainder.end,
                position=remainder.start,
                failures=remainder.failures,
            )
            self._next_lease += 1
            account.held[holding.lease_id] = holding
            self._leases[holding.lease_id] = account
            self._workers.setdefault(worker, {})[holding.lease_id] = account
            leases.append(self._lease(account, holding))
        if leases:
            self._requests.remember(worker, dataset, request_id, [lease.lease_id for lease in leases])
        return leases

    def progress(
        self, lease_id: int, position: int, batches: int, worker: str, *, atomic: bool = False
    ) -> int:
        """The samples of the lease before `position` are done. Returns how many of them are newly so.

        `batches` is the number of batches that brought it there since it was leased. With `atomic` only the
        end of the lease counts as a position.
        """
        account, holding = self._find(lease_id, worker)
        batches_before = holding.batches
        done = account.progress(holding, position, batches, atomic=atomic)
        self._steps += holding.batches - batches_before
        self._requests.use(worker, account.spec.name, holding.request_id)
        if lease_id not in account.held:
            self._forget(holding)
        return done

    def pass_shards(self, dataset: str, *, epoch: int, place: int, steps: int) -> int:
        """For data that is gone through in order by all workers together: everything before that place is done.

        Returns the samples newly done; `steps` is how many steps brought the training there. Safe to repeat.
        """
        done = self._account(dataset).pass_to(epoch, place)
        if done:
            self._steps = steps
        return done

    def set_atomic(self, lease_id: int) -> None:
        """The program gives no order inside this lease, so it cannot be cut."""
        self._find(lease_id)[1].atomic = True

    def release(self, lease_id: int, *, failed: bool = False) -> Returned:
        """Takes a lease from its worker. `failed`: the program raised an error on it (see `ShardGivesUp`)."""
        account, holding = self._find(lease_id)
        return self._give_back(account, [holding], lease_id if failed else None)[0]

    def release_worker(self, worker: str, *, failed_lease: int | None = None) -> list[Returned]:
        """Takes all leases from a worker; `failed_lease` is the one that its program raised an error on.

        To be killed is no failure. Too many failures raise `ShardGivesUp`, after everything has been taken
        back: the one exception here that does not leave the ledger as it was.
        """
        datasets: dict[str, list[Holding]] = {}
        for lease_id, account in self._workers.get(worker, {}).items():
            datasets.setdefault(account.spec.name, []).append(account.held[lease_id])
        # The failed one's data set last, as it may raise.
        last = self._leases.get(failed_lease) if failed_lease is not None else None
        returned = []
        for dataset, holdings in sorted(datasets.items(), key=lambda item: self._accounts[item[0]] is last):
            returned += self._give_back(self._accounts[dataset], holdings, failed_lease)
        return returned

    def _give_back(self, account: Account, holdings: list[Holding], failed: int | None) -> list[Returned]:
        for holding in holdings:
            self._forget(holding)
        returned = account.give_back(holdings, failed_lease=failed)
        for holding, what in zip(holdings, returned, strict=True):
            if holding.lease_id == failed and what.failures > account.spec.max_shard_failures:
                raise ShardGivesUp(what)
        return returned

    def forget_worker(self, worker: str) -> list[Returned]:
        """As `release_worker`, for a worker that will never come again: its request numbers go too."""
        returned = self.release_worker(worker)
        self._requests.forget_worker(worker)
        return returned

    def split(
        self, dataset: str, idle_worker: str, margin_batches: int = 2, *, exclude: Collection[int] = ()
    ) -> SplitProposal | None:
        """What another worker could give to an idle one, when nothing else is left in this epoch.

        Changes nothing. `exclude`: leases whose owners have been asked already, and have not answered.
        """
        account = self._account(dataset)
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
        account, holding = self._find(lease_id, worker)
        returned = account.truncate(holding, end)
        if lease_id not in account.held:
            self._forget(holding)
        return returned

    # -- what cannot be done, and what must be done again ----------------------------------------------------

    def mark_bad(
        self, dataset: str, start: int, end: int, where: str, reason: str, *, epoch: int | None = None
    ) -> int:
        """Samples that cannot be read in this epoch. Returns how many were not known to be bad before.

        They are still passed by position, like all others. To be called before the progress that passes them,
        which may end the epoch.
        """
        account = self._account(dataset)
        if not 0 <= start < end <= account.spec.size:
            raise LedgerError(
                f"[{start}, {end}) is no range of the {account.spec.size} samples of {dataset}."
            )
        return account.bad.mark(
            start, end, epoch=account.epoch if epoch is None else epoch, where=where, reason=reason
        )

    def skip(self, lease_id: int, *, where: str, reason: str) -> int:
        """Writes off what is left of a lease: its samples are bad, and passed. Returns how many."""
        account, holding = self._find(lease_id)
        samples = holding.remaining
        self.mark_bad(account.spec.name, holding.position, holding.end, where, reason)
        account.progress(holding, holding.end, holding.batches, atomic=False)
        self._forget(holding)
        return samples

    def add_again(self, dataset: str, epoch: int, samples: int) -> None:
        """So many samples were trained, in vain, and will be trained again."""
        if samples < 0:
            raise LedgerError(f"{samples} samples of {dataset} cannot have been trained again.")
        self._account(dataset).add_again(epoch, samples)

    def reset_dataset(self, dataset: str) -> None:
        """Back to the beginning of the first epoch; leases are void, what was done will be done again."""
        account = self._account(dataset)
        self._void(account)
        account.reset()

    def rollback(self, snapshot: dict[str, Any] | None) -> None:
        """To the ledger of a checkpoint: all leases are void, what was done since will be done again.

        None is the checkpoint of a job that has not begun. So a data set that a checkpoint does not know
        begins anew; one that only the checkpoint knows stays unknown. Numbers of leases and requests go on
        growing from where they are. On a new ledger this takes over the progress of another job, without its
        workers.

        What is done again is the difference of two counts, so it is exact for a checkpoint of this history.
        For one that an earlier rollback went back behind it is not; what is done and to do always is.
        """
        then = Ledger.restore(snapshot) if snapshot is not None else Ledger()
        accounts: dict[str, Account] = {}
        for dataset, account in self._accounts.items():
            # On copies, so that a checkpoint that does not fit changes nothing.
            accounts[dataset] = Account.from_json(account.to_json())
            if dataset in then._accounts:
                accounts[dataset].rollback(then._accounts[dataset])
            else:
                accounts[dataset].reset()
        self._accounts = accounts
        self._next_lease = max(self._next_lease, then._next_lease)
        self._steps = then._steps
        self._leases.clear()
        self._workers.clear()
        self._requests.void()

    def restore_dataset(self, dataset: str, then: Ledger) -> None:
        """As `rollback`, of one data set alone."""
        account = Account.from_json(self._account(dataset).to_json())
        account.rollback(then._account(dataset))
        problems = account.problems()
        if problems:
            raise LedgerError(f"This is no account of the data set {dataset}: {'; '.join(problems)}.")
        self._void(self._account(dataset))
        self._accounts[dataset] = account
        self._requests.forget_dataset(dataset)

    # -- what was forgotten ----------------------------------------------------------------------------------

    def reopen(self, skipped_numbers: int) -> dict[int, Lease]:
        """This is an old snapshot. All leases go back, and are returned: their workers may have done more by now.

        The next leases get numbers so much higher, beyond all that may have been given out since.
        """
        before = {i: self._lease(account, account.held[i]) for i, account in self._leases.items()}
        for account in self._accounts.values():
            self._void(account)
            account.give_back(account.held.values())
        self._requests.void()
        self._next_lease += skipped_numbers
        return before

    def claim_done(
        self, dataset: str, *, epoch: int, start: int, end: int
    ) -> tuple[int, list[tuple[int, int, int]]]:
        """A worker has done these samples. Returns how many of them are newly done, and the ranges (epoch, start, end)
        that turned out to have been given out.
        """
        account = self._claimed_account(dataset, epoch)
        found, given_out = claim(account, epoch=epoch, start=start, end=end, partly=True)
        account.count(epoch, found)
        return found, [(r.epoch, r.start, r.end) for r in given_out]

    def claim_lease(self, lease: Lease, *, atomic: bool = False) -> tuple[bool, list[tuple[int, int, int]]]:
        """A worker holds this lease, done up to its position. False: others have, or have done, some of it."""
        account = self._claimed_account(lease.dataset, lease.epoch)
        if lease.lease_id in self._leases:
            return False, []
        found, given_out = claim(
            account, epoch=lease.epoch, start=lease.position, end=lease.end, partly=False
        )
        if found:
            account.held[lease.lease_id] = Holding(
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
            self._leases[lease.lease_id] = account
            self._workers.setdefault(lease.worker, {})[lease.lease_id] = account
        return found > 0, [(r.epoch, r.start, r.end) for r in given_out]

    def _claimed_account(self, dataset: str, epoch: int) -> Account:
        account = self._account(dataset)
        if not account.spec.overlapping and account.epoch < epoch < account.spec.epochs:
            self.complete_epoch(dataset, epoch - 1)
            account.advance()
        return account

    def complete_epoch(self, dataset: str, epoch: int) -> None:
        """Somebody has seen the end of this epoch: all of it was done, though not everybody is there to tell."""
        account = self._account(dataset)
        for holding in [h for h in account.held.values() if h.epoch <= epoch]:
            account.give_back([holding])
            self._forget(holding)
        samples = complete(account, min(epoch, account.spec.epochs - 1))
        self._steps += -(-samples // account.spec.batch_size)

    def add_steps(self, steps: int) -> None:
        self._steps += steps

    def skip_number(self, lease_id: int) -> None:
        """A lease of this number has been given out: the next ones get higher ones."""
        self._next_lease = max(self._next_lease, lease_id + 1)

    def give_up_claims(self, dataset: str, ranges: list[tuple[int, int, int]]) -> None:
        """Nobody has told of these ranges (epoch, start, end), as far as they still wait: they count as done again."""
        account = self._account(dataset)
        for epoch, samples in waiting_of(account, ranges).items():
            account.add_again(epoch, samples)

    # -- questions -------------------------------------------------------------------------------------------

    def datasets(self) -> list[str]:
        return list(self._accounts)

    def spec(self, dataset: str) -> DatasetSpec:
        return self._account(dataset).spec

    def epoch(self, dataset: str) -> int:
        """The newest one, counted from 0."""
        return self._account(dataset).epoch

    def epochs_begun(self, dataset: str) -> int:
        """How many epochs something has been given out of."""
        account = self._account(dataset)
        return account.epoch + (account.issued > 0)

    def epoch_done(self, dataset: str) -> bool:
        """All samples of the current epoch are done."""
        return self._account(dataset).epoch_done

    def finished(self, dataset: str) -> bool:
        """Nothing will be given out any more, and nothing is held that could still be done."""
        return self._account(dataset).finished

    def stopped(self, dataset: str) -> bool:
        return self._account(dataset).stopped

    def done(self, dataset: str, epoch: int) -> int:
        """Samples passed in an epoch, bad ones included."""
        return self._account(dataset).done_in(epoch)

    def samples_done(self, dataset: str) -> int:
        """Samples passed in all epochs so far."""
        account = self._account(dataset)
        return account.epoch * account.spec.size + account.done - account.left_behind

    def skipped(self, dataset: str, epoch: int | None = None) -> int:
        """Bad samples among those passed in an epoch, or else all different ones ever met."""
        account = self._account(dataset)
        return account.bad.samples if epoch is None else account.skipped_in(epoch)

    def again(self, dataset: str, epoch: int) -> int:
        """Samples of an epoch that had to be done once more."""
        return self._account(dataset).again.get(epoch, 0)

    def again_epochs(self, dataset: str) -> list[int]:
        """The epochs of which something had to be done once more."""
        return sorted(self._account(dataset).again)

    def bad_ranges(self, dataset: str) -> list[BadRange]:
        return list(self._account(dataset).bad)

    def remaining(self, dataset: str, epoch: int | None = None) -> int:
        """Samples still to pass: in an epoch, or else in all of them; only those in work if it is stopped."""
        account = self._account(dataset)
        if epoch is not None:
            return account.spec.size - account.done_in(epoch)
        if account.stopped:
            return account.in_work
        return (account.spec.epochs - account.epoch) * account.spec.size - account.done + account.left_behind

    def leasable(self, dataset: str) -> bool:
        """A new request would get something now."""
        return self._account(dataset).available

    def answered(self, dataset: str, worker: str, request_id: int) -> bool:
        """The request was made before, and would get what it got then, as far as it is still held."""
        account = self._account(dataset)
        before = self._requests.repeated(worker, dataset, request_id)
        return before is not None and any(i in account.held for i in before.leases)

    @property
    def next_lease(self) -> int:
        """The number that the next lease will get; those below it have been given out."""
        return self._next_lease

    def lease_of(self, lease_id: int) -> Lease | None:
        """A lease that somebody holds."""
        account = self._leases.get(lease_id)
        return None if account is None else self._lease(account, account.held[lease_id])

    def to_do(self, dataset: str, most: int) -> list[tuple[int, int]]:
        """What is still to be given out in this epoch, in its order; the first so many shards of it."""
        return self._account(dataset).to_do(most)

    def place(self, dataset: str) -> tuple[int, int]:
        """The epoch and the place in its order up to which shards have been given out or passed."""
        account = self._account(dataset)
        return account.epoch, account.cursor

    def order(self, dataset: str, *, epoch: int, first: int, count: int) -> list[int]:
        """Where the shards at places [first, first + count) of an epoch begin."""
        account = self._account(dataset)
        if not 0 <= epoch < account.spec.epochs or first < 0:
            raise LedgerError(f"{dataset} has no place {first} in epoch {epoch + 1}.")
        return account.starts(epoch, first, count)

    @property
    def steps(self) -> int:
        """All batches of all data sets so far."""
        return self._steps

    def held(self, dataset: str) -> list[Lease]:
        account = self._account(dataset)
        return [self._lease(account, holding) for holding in account.held.values()]

    def held_by(self, worker: str) -> list[Lease]:
        """Oldest first."""
        return [self._lease(account, account.held[i]) for i, account in self._workers.get(worker, {}).items()]

    def check(self) -> list[str]:
        """Where the accounts contradict themselves: nothing, ever. For tests, and for the audit."""
        problems = [problem for account in self._accounts.values() for problem in account.problems()]
        held = {i for account in self._accounts.values() for i in account.held}
        if held != set(self._leases) or held != {i for leases in self._workers.values() for i in leases}:
            problems.append("leases, data sets and workers do not agree on who holds what")
        return problems

    # -- on disk ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything, as a small JSON document."""
        return {
            "format": _FORMAT,
            "next_lease": self._next_lease,
            "steps": self._steps,
            "datasets": {name: account.to_json() for name, account in self._accounts.items()},
            "requests": self._requests.to_json(),
        }

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> Ledger:
        """The ledger that `snapshot` was taken of, leases and all."""
        if snapshot.get("format") != _FORMAT:
            raise LedgerError(
                f"This is no ledger that this version can read (format {snapshot.get('format')})."
            )
        ledger = cls()
        try:
            ledger._next_lease = snapshot["next_lease"]
            ledger._steps = snapshot["steps"]
            for name, document in snapshot["datasets"].items():
                ledger._accounts[name] = Account.from_json(document)
            ledger._requests = Requests.from_json(snapshot["requests"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"This is no ledger: {error!r}.") from error
        every = [(h, account) for account in ledger._accounts.values() for h in account.held.values()]
        for holding, account in sorted(every, key=lambda pair: pair[0].lease_id):
            ledger._leases[holding.lease_id] = account
            ledger._workers.setdefault(holding.worker, {})[holding.lease_id] = account
        return ledger

    # -- inside ----------------------------------------------------------------------------------------------

    def _account(self, dataset: str) -> Account:
        try:
            return self._accounts[dataset]
        except KeyError:
            known = ", ".join(self._accounts) or "none"
            raise LedgerError(f"There is no data set {dataset} (there are: {known}).") from None

    def _find(self, lease_id: int, worker: str | None = None) -> tuple[Account, Holding]:
        account = self._leases.get(lease_id)
        if account is None:
            raise LostLease(lease_id, worker or "anybody")
        holding = account.held[lease_id]
        if worker is not None and holding.worker != worker:
            raise LostLease(lease_id, worker)
        return account, holding

    def _forget(self, holding: Holding) -> None:
        del self._leases[holding.lease_id]
        leases = self._workers[holding.worker]
        del leases[holding.lease_id]
        if not leases:
            del self._workers[holding.worker]

    def _void(self, account: Account) -> None:
        for holding in account.held.values():
            self._forget(holding)

    @staticmethod
    def _lease(account: Account, holding: Holding) -> Lease:
        return Lease(
            lease_id=holding.lease_id,
            dataset=account.spec.name,
            worker=holding.worker,
            epoch=holding.epoch,
            start=holding.start,
            end=holding.end,
            failures=holding.failures,
            position=holding.position,
            batches=holding.batches,
        )
