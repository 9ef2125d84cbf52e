"""Fences trainers that were cut off: which lease may add its shard to the state that trainers share.

A trainer that is frozen or cannot be reached is taken for dead, and its shard is leased to another one. When it comes
back it knows nothing of that, and would add what it has learned of the shard a second time. So the number of a lease,
which only grows, is its fencing token. A trainer registers its lease in a file beside the state before it trains, in
the place of any older lease on the same samples, and adds its shard only while its own is registered. The caller holds
the lock of the folder.

Failure modes
    Cut off between the lease and its registration: the trainer asks the master, after it has registered, whether the
    shard is still its own. A later lease of these samples is then registered later, in the place of this one.
    A damaged file is as if it were empty: trainers lose what they have in hand, and their shards are trained again.
    Leases that a job has left behind say nothing to another one on the same folder, whose ledger has another name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_FILE = "leases.json"
# So many entries that other jobs have left are kept: one of them may still run.
MOST_OF_OTHER_JOBS = 256


class Span(NamedTuple):
    """Samples [start, end) of an epoch of a data set, as the ledger of a job counts them."""

    ledger_id: str
    dataset: str
    epoch: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"samples [{self.start}, {self.end}) of {self.dataset}, epoch {self.epoch}"

    def overlaps(self, other: Span) -> bool:
        """Whether they have samples in common."""
        return self[:3] == other[:3] and self.start < other.end and other.start < self.end

    def is_within(self, spans: Iterable[Span]) -> bool:
        """Whether all of it is in some of these: a trainer may have got what another one had begun in parts."""
        start = self.start
        for other in sorted(spans):
            if self[:3] == other[:3] and other.start <= start:
                start = max(start, other.end)
        return start >= self.end


class Lease(NamedTuple):
    """The right of one trainer to train a shard."""

    number: int
    span: Span


class ShardFence:
    """The registered leases of a job, in a folder that all trainers see."""

    def __init__(self, folder: Path, ledger_id: str, *, writer: str) -> None:
        """`writer`: the trainer's own word for names of files."""
        self._path = folder / _FILE
        self._ledger_id = ledger_id
        self._writer = writer
        # Their shards are in the state and reported: no one is to add them any more.
        self._finished: set[int] = set()

    def register(self, lease: Lease) -> bool:
        """Fences all older leases on these samples. False if there is a newer one."""
        registered = self._read()
        others = [other for other in registered if other.span.overlaps(lease.span)]
        if any(other.number > lease.number for other in others):
            return False
        self._write([*(other for other in registered if other not in others), lease])
        return True

    def is_registered(self, lease: Lease) -> bool:
        """Whether the shard may be added to the state."""
        return lease in self._read()

    def finish(self, lease: Lease) -> None:
        """The shard is reported. The file loses the lease when it is written next."""
        self._finished.add(lease.number)

    def remove(self, lease: Lease | None = None) -> None:
        """Removes a lease that is not used, and those that are finished."""
        self._write([other for other in self._read() if other != lease])

    def _read(self) -> list[Lease]:
        try:
            return [Lease(number, Span(*span)) for number, *span in json.loads(self._path.read_text())]
        except (FileNotFoundError, ValueError, TypeError):
            return []

    def _write(self, leases: list[Lease]) -> None:
        own = [lease for lease in leases if lease.span.ledger_id == self._ledger_id]
        others = [lease for lease in leases if lease.span.ledger_id != self._ledger_id]
        kept = [lease for lease in own if lease.number not in self._finished]
        self._finished.clear()
        document = [[lease.number, *lease.span] for lease in (*others[-MOST_OF_OTHER_JOBS:], *kept)]
        new = self._path.with_suffix(f".{self._writer}.new")
        new.write_text(json.dumps(document))
        new.replace(self._path)
