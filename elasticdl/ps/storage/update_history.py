"""The history of buckets: the number of their updates, and the last batch of every worker.

Exactly once is a promise about buckets, since buckets move: a batch may have reached some of the buckets of a push and
not others. Yet nearly always all buckets of a server have had the same batches. So the account is kept by histories,
sets of buckets with one history: a bucket that arrives from elsewhere brings its own, and as soon as two histories
have had the same batches they are one again. In the common case there is one history, and a comparison a push.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.core.buckets import BUCKETS


@dataclass(frozen=True, kw_only=True)
class LastPush:
    """The last batch of a worker that was applied; sequence 0 if there is none."""

    sequence: int = 0
    lease_id: int = 0
    position: int = 0
    batches: int = 0
    # The reply that was sent.
    version: int = 0


NO_BATCH = LastPush()


@dataclass(kw_only=True, eq=False)
class UpdateHistory:
    """Buckets that have had the same updates."""

    mask: Mask
    initialized: bool = False
    version: int = 0
    # Updates since the slots began: what optimizers call the step.
    step: int = 0
    # Batches of which nothing was applied.
    refused: int = 0
    # Synchronous training: so many gradients have been added up, and this is the last one's learning rate.
    waiting: int = 0
    waiting_learning_rate: float = 0.0
    last: dict[str, LastPush] = field(default_factory=dict)

    def same_history(self, other: UpdateHistory) -> bool:
        return (
            self.version == other.version
            and self.step == other.step
            and self.refused == other.refused
            and self.initialized == other.initialized
            and self.waiting == other.waiting
            and self.waiting_learning_rate == other.waiting_learning_rate
            and self.last == other.last
        )

    def attributes(self) -> dict[str, Any]:
        """All but the buckets, as JSON can say it."""
        return {
            "initialized": self.initialized,
            "version": self.version,
            "optimizer_step": self.step,
            "refused": self.refused,
            "waiting": self.waiting,
            "waiting_learning_rate": self.waiting_learning_rate,
            "last": {
                worker: [last.sequence, last.lease_id, last.position, last.batches, last.version]
                for worker, last in self.last.items()
            },
        }

    @classmethod
    def of_attributes(cls, mask: Mask, attributes: dict[str, Any]) -> UpdateHistory:
        """Returns the history of a bucket from another server, or from a file, which has no workers."""
        return cls(
            mask=mask,
            initialized=bool(attributes.get("initialized", True)),
            version=int(attributes.get("version", 0)),
            step=int(attributes.get("optimizer_step", 0)),
            refused=int(attributes.get("refused", 0)),
            waiting=int(attributes.get("waiting", 0)),
            waiting_learning_rate=float(attributes.get("waiting_learning_rate", 0.0)),
            last={
                worker: LastPush(
                    sequence=sequence, lease_id=lease_id, position=position, batches=batches, version=version
                )
                for worker, (sequence, lease_id, position, batches, version) in attributes.get(
                    "last", {}
                ).items()
            },
        )


class UpdateHistories:
    """All buckets of a server, each in one history. Not thread-safe."""

    def __init__(self) -> None:
        self._all = [UpdateHistory(mask=np.ones(BUCKETS, np.bool_))]

    def select(self, mask: Mask) -> list[UpdateHistory]:
        """The histories of these buckets and no others; where need be, histories are split."""
        selected = []
        for history in list(self._all):
            common = history.mask & mask
            if not common.any():
                continue
            if (common != history.mask).any():
                rest = replace(history, mask=history.mask & ~mask, last=dict(history.last))
                history.mask = common
                self._all.append(rest)
            selected.append(history)
        return selected

    def merge(self, histories: Sequence[UpdateHistory]) -> None:
        """Makes one of those among these that have come to have the same history."""
        for index, history in enumerate(histories):
            for other in histories[index + 1 :]:
                if history.mask.any() and other.mask.any() and history.same_history(other):
                    history.mask = history.mask | other.mask
                    other.mask = np.zeros(BUCKETS, np.bool_)
        self._all = [history for history in self._all if history.mask.any()]

    def put(self, new: UpdateHistory) -> None:
        """Buckets with another history than they had here."""
        self.select(new.mask)
        self._all = [history for history in self._all if not (history.mask & new.mask).any()]
        self._all.append(new)

    def __iter__(self) -> Iterator[UpdateHistory]:
        return iter(self._all)
