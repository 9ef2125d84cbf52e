"""The data sets of a job by their names, each with its account (`dataset_account.py`); how they go back to a
checkpoint's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elasticdl.master.ledger.dataset_account import DatasetAccount
from elasticdl.master.ledger.shard_types import DatasetSpec, LedgerError


class DatasetAccounts:
    def __init__(self) -> None:
        self._by_name: dict[str, DatasetAccount] = {}

    def __iter__(self) -> Iterator[DatasetAccount]:
        return iter(self._by_name.values())

    def __getitem__(self, dataset: str) -> DatasetAccount:
        try:
            return self._by_name[dataset]
        except KeyError:
            known = ", ".join(self._by_name) or "none"
            raise LedgerError(f"There is no data set {dataset} (there are: {known}).") from None

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def add(self, spec: DatasetSpec) -> None:
        """The same spec again changes nothing."""
        known = self._by_name.get(spec.name)
        if known is None:
            self._by_name[spec.name] = DatasetAccount(spec)
        elif known.spec != spec:
            raise LedgerError(
                f"There are two accounts of the data set {spec.name}: {known.spec.differences(spec)}."
            )

    def remove(self, dataset: str) -> None:
        del self._by_name[dataset]

    # -- going back ------------------------------------------------------------------------------------------

    def roll_back(self, then: DatasetAccounts) -> None:
        """All at once, or, if one of them does not fit, none.

        A data set that was not known then is reset; one that was known only then stays unknown.
        """
        accounts: dict[str, DatasetAccount] = {}
        for dataset, account in self._by_name.items():
            # On copies, so that what does not fit changes nothing.
            accounts[dataset] = DatasetAccount.from_json(account.to_json())
            if dataset in then._by_name:
                accounts[dataset].rollback(then._by_name[dataset])
            else:
                accounts[dataset].reset()
        self._by_name = accounts

    def roll_back_one(self, dataset: str, then: DatasetAccounts) -> None:
        account = DatasetAccount.from_json(self[dataset].to_json())
        account.rollback(then[dataset])
        problems = account.problems()
        if problems:
            raise LedgerError(f"This is no account of the data set {dataset}: {'; '.join(problems)}.")
        self._by_name[dataset] = account

    # -- on disk ---------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {name: account.to_json() for name, account in self._by_name.items()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> DatasetAccounts:
        accounts = cls()
        for name, account in document.items():
            accounts._by_name[name] = DatasetAccount.from_json(account)
        return accounts
