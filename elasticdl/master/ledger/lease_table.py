"""The leases of a job, by their numbers, which are never reused, and by the workers that hold them.

What of a lease is done is in the account of its data set (`dataset_account.py`), which also has the lease itself.
Here it is found: a report names a number, and when a worker dies all that it held is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.master.ledger.dataset_account import DatasetAccount
from elasticdl.master.ledger.shard_types import Holding, Lease, LostLease, Remainder


class LeaseTable:
    def __init__(self) -> None:
        # Smaller numbers have been used.
        self.next_number = 1
        self._accounts: dict[int, DatasetAccount] = {}
        self._workers: dict[str, dict[int, DatasetAccount]] = {}

    @classmethod
    def held_in(cls, accounts: Iterable[DatasetAccount], *, next_number: int) -> LeaseTable:
        """Rebuilds the table from the leases in the accounts."""
        leases = cls()
        leases.next_number = next_number
        every = [(holding, account) for account in accounts for holding in account.held.values()]
        for holding, account in sorted(every, key=lambda pair: pair[0].lease_id):
            leases._enter(account, holding)
        return leases

    # -- changes ---------------------------------------------------------------------------------------------

    def give(self, account: DatasetAccount, what: Remainder, *, worker: str, request_id: int) -> Lease:
        """A new one, of what has been taken from the account."""
        holding = Holding(
            lease_id=self.next_number,
            worker=worker,
            request_id=request_id,
            epoch=what.epoch,
            start=what.start,
            end=what.end,
            position=what.start,
            failures=what.failures,
            applied=what.applied,
        )
        self.next_number += 1
        self.add(account, holding)
        return holding.lease(account.spec.name)

    def add(self, account: DatasetAccount, holding: Holding) -> None:
        account.held[holding.lease_id] = holding
        self._enter(account, holding)

    def _enter(self, account: DatasetAccount, holding: Holding) -> None:
        self._accounts[holding.lease_id] = account
        self._workers.setdefault(holding.worker, {})[holding.lease_id] = account

    def forget(self, holding: Holding) -> None:
        """Removes a lease that is done, or that its account has requeued."""
        del self._accounts[holding.lease_id]
        mine = self._workers[holding.worker]
        del mine[holding.lease_id]
        if not mine:
            del self._workers[holding.worker]

    def void(self, account: DatasetAccount) -> None:
        """Removes all leases of one data set."""
        for holding in account.held.values():
            self.forget(holding)

    def void_all(self) -> None:
        """Numbers go on growing from where they are."""
        self._accounts.clear()
        self._workers.clear()

    # -- questions -------------------------------------------------------------------------------------------

    def __contains__(self, lease_id: int) -> bool:
        return lease_id in self._accounts

    def find(self, lease_id: int, worker: str | None = None) -> tuple[DatasetAccount, Holding]:
        """Raises `LostLease` if no worker has it, or another one than the given."""
        account = self._accounts.get(lease_id)
        if account is None:
            raise LostLease(lease_id, worker or "any worker")
        holding = account.held[lease_id]
        if worker is not None and holding.worker != worker:
            raise LostLease(lease_id, worker)
        return account, holding

    def account_of(self, lease_id: int) -> DatasetAccount | None:
        return self._accounts.get(lease_id)

    def held_by(self, worker: str) -> list[tuple[DatasetAccount, Holding]]:
        """Oldest first."""
        mine = self._workers.get(worker, {})
        return [(account, account.held[lease_id]) for lease_id, account in mine.items()]

    def count(self, worker: str) -> int:
        return len(self._workers.get(worker, ()))

    def all(self) -> list[tuple[DatasetAccount, Holding]]:
        return [(account, account.held[lease_id]) for lease_id, account in self._accounts.items()]

    def agree_with(self, accounts: Iterable[DatasetAccount]) -> bool:
        """Accounts, numbers and workers say the same of who holds what."""
        held = {lease_id for account in accounts for lease_id in account.held}
        return held == set(self._accounts) == {i for mine in self._workers.values() for i in mine}
