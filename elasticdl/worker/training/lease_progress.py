"""The progress of a worker in its leases, and the leases that were shortened.

At the end of an epoch the master requests parts of leases for idle workers (truncations). A worker agrees to end a
lease earlier, but never before samples that it has already trained, and never inside a shard whose feed gives no order:
a part of such a shard cannot be accounted for.
"""

from __future__ import annotations

from elasticdl.worker.trainer import Batch


class LeaseProgress:
    """Leases have growing numbers and are worked on in that order."""

    def __init__(self) -> None:
        # By lease: the position inside the shard, and the batches up to it.
        self._positions: dict[int, tuple[int, int]] = {}
        # By lease, where it ends if not at the end of its shard.
        self._ends: dict[int, int] = {}
        # Leases of shards without order inside, once they are begun.
        self._indivisible: set[int] = set()
        # The newest lease that is done.
        self._last_done = 0
        self._answered: set[tuple[int, int]] = set()

    def start_generation(self) -> None:
        """Forgets all leases. Truncations that were answered stay answered: leases never get a number twice."""
        self._positions.clear()
        self._ends.clear()
        self._indivisible.clear()
        self._last_done = 0

    def position(self, batch: Batch) -> tuple[int, int]:
        """Returns the position before this batch, and the batches up to it."""
        return self._positions.get(batch.shard.lease_id, (batch.shard.start, 0))

    def end(self, batch: Batch) -> int:
        return self._ends.get(batch.shard.lease_id, batch.shard.end)

    def end_at(self, lease_id: int, end: int) -> None:
        self._ends[lease_id] = end

    def end_after(self, lease_id: int, wanted: int) -> int | None:
        """Returns where the lease is to end if others want what lies behind `wanted`; None if that was answered before,
        or if the whole lease is done or will be.
        """
        key = (lease_id, wanted)
        if key in self._answered:
            return None
        self._answered.add(key)
        if lease_id in self._indivisible or lease_id <= self._last_done:
            # The report that says so may still be on its way.
            return None
        position, _ = self._positions.get(lease_id, (0, 0))
        return max(wanted, position)

    def advance(self, batch: Batch, position: int, batches: int) -> None:
        """Notes the progress after a batch has been trained."""
        lease_id = batch.shard.lease_id
        if batch.last:
            self.finish(lease_id)
        elif batch.atomic:
            self._positions[lease_id] = (batch.shard.start, batches)
            self._indivisible.add(lease_id)
        else:
            self._positions[lease_id] = (position, batches)

    def finish(self, lease_id: int) -> None:
        self._last_done = lease_id
        self._positions.pop(lease_id, None)
        self._ends.pop(lease_id, None)
        self._indivisible.discard(lease_id)
