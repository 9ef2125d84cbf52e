"""The last request of each worker and its reply, so that a repeated request gets the same reply.

A worker that gets no answer (the connection broke, the master was killed) repeats its request under the same
number, and must get the same leases: the first ones would stay leased without being worked on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticdl.master.ledger.shard_types import LedgerError


@dataclass(kw_only=True)
class Request:
    request_id: int
    leases: list[int] = field(default_factory=list)
    # The worker has reported on what it got, so it has the answer: a repetition is an old message.
    used: bool = False


class RequestCache:
    """The last request of every worker for every data set."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Request] = {}

    def repeated(self, worker: str, dataset: str, request_id: int) -> Request | None:
        """The request, if it was made before. Raises if it is older than that."""
        last = self._last.get((worker, dataset))
        if last is not None and request_id < last.request_id:
            raise LedgerError(
                f"{worker} asked for shards of {dataset} with request {request_id} after {last.request_id}."
            )
        return last if last is not None and request_id == last.request_id else None

    def remember(self, worker: str, dataset: str, request_id: int, leases: list[int]) -> None:
        self._last[worker, dataset] = Request(request_id=request_id, leases=leases)

    def use(self, worker: str, dataset: str, request_id: int) -> None:
        """The worker works on what it got by this request."""
        last = self._last.get((worker, dataset))
        if last is not None and last.request_id == request_id:
            last.used = True

    def forget_dataset(self, dataset: str) -> None:
        self._last = {key: request for key, request in self._last.items() if key[1] != dataset}

    def forget_worker(self, worker: str) -> None:
        self._last = {key: request for key, request in self._last.items() if key[0] != worker}

    def void(self) -> None:
        """All leases are gone; the numbers stay."""
        for request in self._last.values():
            request.leases.clear()
            request.used = False

    def to_json(self) -> list[Any]:
        return [
            [worker, dataset, request.request_id, list(request.leases), request.used]
            for (worker, dataset), request in self._last.items()
        ]

    @classmethod
    def from_json(cls, document: list[Any]) -> RequestCache:
        requests = cls()
        for worker, dataset, request_id, leases, used in document:
            requests._last[worker, dataset] = Request(request_id=request_id, leases=list(leases), used=used)
        return requests
