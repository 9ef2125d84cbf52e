"""Chooses the worker that gives some of its samples to an idle one, and the index from which on.

At the end of an epoch everything is leased, some workers have nothing, others still have a lot. What a worker
has left, over all its leases, tells when it will be done, so the one with most left is relieved first, of
half of it. What it will come to last is taken: the newest of its leases, whole if it has not begun it, else
from a boundary of its batches on. This only proposes. The owner is ahead of what it has reported, and decides
where it can stop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from elasticdl.master.ledger.shard_types import Holding, SplitProposal


def propose(
    holdings: Iterable[Holding],
    *,
    dataset: str,
    batch_size: int,
    idle_worker: str,
    margin_batches: int,
    exclude: Collection[int],
) -> SplitProposal | None:
    """The best lease to take from, or None if no worker can spare anything.

    `margin_batches` are left to the owner beyond its reported position, since it is on its way there. Leases
    in `exclude` are not proposed: their owners have been asked already.
    """
    workers: dict[str, list[Holding]] = {}
    for holding in holdings:
        if holding.worker != idle_worker:
            workers.setdefault(holding.worker, []).append(holding)
    for held in workers.values():
        held.sort(key=lambda holding: holding.lease_id)
    for held in sorted(workers.values(), key=lambda held: (-_remaining(held), held[0].lease_id)):
        open_ones = [holding for holding in held if holding.lease_id not in exclude]
        half = _remaining(open_ones) // 2
        for holding in reversed(open_ones):
            new_end = _new_end(
                holding,
                # The oldest is the one it works on, whether or not it has said so.
                begun=holding.touched or holding is held[0],
                half=half,
                batch_size=batch_size,
                margin=margin_batches * batch_size,
            )
            if new_end is not None:
                return SplitProposal(
                    dataset=dataset,
                    lease_id=holding.lease_id,
                    worker=holding.worker,
                    new_end=new_end,
                    samples=holding.end - max(new_end, holding.position),
                )
    return None


def _remaining(holdings: Iterable[Holding]) -> int:
    return sum(holding.remaining for holding in holdings)


def _new_end(holding: Holding, *, begun: bool, half: int, batch_size: int, margin: int) -> int | None:
    if not begun and (holding.atomic or holding.remaining <= half):
        return holding.start
    if holding.atomic:
        return None
    keep_to = holding.position + margin if begun else holding.start + batch_size
    cut = max(keep_to, holding.end - half)
    boundary = holding.start + -(-(cut - holding.start) // batch_size) * batch_size
    if boundary < holding.end:
        return boundary
    return None if begun else holding.start
