"""The number of samples of each data set, as workers have counted them."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.master.ledger.shard_types import LedgerError


class DatasetSizes:
    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def announce(self, dataset: str, size: int) -> bool:
        """Returns whether it is new. Raises `LedgerError` if another worker has counted differently."""
        known = self._sizes.get(dataset)
        if known is not None and known != size:
            raise LedgerError(
                f"The {dataset} data has {size} samples for one worker and {known} for another. "
                "All workers must see the same files."
            )
        self._sizes[dataset] = size
        return known is None

    def __contains__(self, dataset: object) -> bool:
        return dataset in self._sizes

    def get(self, dataset: str, default: int = 0) -> int:
        return self._sizes.get(dataset, default)

    @property
    def known(self) -> Mapping[str, int]:
        return self._sizes

    def restore(self, sizes: dict[str, int]) -> None:
        self._sizes = dict(sizes)
