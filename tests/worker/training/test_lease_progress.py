"""How far a worker is with its leases, and where it lets one end for others."""

from __future__ import annotations

import pytest

from elasticdl.worker.trainer import Batch, Shard
from elasticdl.worker.training.lease_progress import LeaseProgress

SHARD = Shard(lease_id=7, epoch=0, start=100, end=150)


def batch(position: int, *, atomic: bool = False) -> Batch:
    return Batch(shard=SHARD, position=position, atomic=atomic, last=position == SHARD.end, size=10)


def test_new_lease_is_at_its_start() -> None:
    progress = LeaseProgress()
    assert progress.position(batch(110)) == (100, 0)
    assert progress.end(batch(110)) == 150


@pytest.mark.parametrize(("wanted", "end"), [(140, 140), (105, 120)])
def test_truncation_never_ends_a_lease_before_what_is_trained(wanted: int, end: int) -> None:
    progress = LeaseProgress()
    progress.advance(batch(120), 120, 2)
    assert progress.position(batch(130)) == (120, 2)
    assert progress.end_after(SHARD.lease_id, wanted) == end


def test_truncation_is_answered_once() -> None:
    progress = LeaseProgress()
    assert progress.end_after(SHARD.lease_id, 140) == 140
    assert progress.end_after(SHARD.lease_id, 140) is None
    assert progress.end_after(SHARD.lease_id, 130) == 130


def test_shard_without_order_is_not_truncated_once_begun() -> None:
    progress = LeaseProgress()
    progress.advance(batch(120, atomic=True), 120, 2)
    assert progress.position(batch(130, atomic=True)) == (100, 2)
    assert progress.end_after(SHARD.lease_id, 140) is None


def test_done_lease_is_not_truncated() -> None:
    progress = LeaseProgress()
    progress.advance(batch(150), 150, 5)
    assert progress.end_after(SHARD.lease_id, 140) is None
    assert progress.end_after(SHARD.lease_id + 1, 140) == 140


def test_another_generation_forgets_positions_and_ends() -> None:
    progress = LeaseProgress()
    progress.advance(batch(120), 120, 2)
    progress.end_at(SHARD.lease_id, 130)
    progress.start_generation()
    assert progress.position(batch(130)) == (100, 0)
    assert progress.end(batch(130)) == 150
