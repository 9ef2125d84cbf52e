"""The limit on what is handed out: a job with --max_step trains so many batches and not one more."""

from __future__ import annotations

import dataclasses

from elasticdl.master.ledger.ledger import Lease, Ledger


def within_steps(ledger: Ledger, leases: list[Lease], max_step: int) -> list[Lease]:
    """Gives back what of these new leases goes beyond the last step asked for, and returns the rest."""
    if not leases:
        return []
    dataset = leases[0].dataset
    batch = ledger.spec(dataset).batch_size
    new = {lease.lease_id for lease in leases}
    promised = sum(
        _batches(lease.end - lease.start, batch)
        for lease in ledger.held(dataset)
        if lease.lease_id not in new
    )
    left = max_step - ledger.steps - promised
    kept = []
    for lease in leases:
        batches = _batches(lease.end - lease.start, batch)
        if left <= 0:
            ledger.release(lease.lease_id)
        elif batches > left:
            end = lease.start + left * batch
            ledger.truncate(lease.lease_id, lease.worker, end)
            kept.append(dataclasses.replace(lease, end=end))
        else:
            kept.append(lease)
        left -= batches
    return kept


def _batches(samples: int, batch: int) -> int:
    return -(-samples // batch)
