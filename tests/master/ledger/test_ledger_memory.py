"""The ledger of 10¹² samples is as small as that of 10³."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

from elasticdl.master.ledger import ledger as ledger_module
from elasticdl.master.ledger.ledger import DatasetSpec, Ledger

LEDGER = Path(ledger_module.__file__).parent


def work(size: int) -> tuple[int, int]:
    """Bytes in memory and on disk after the same amount of work on a data set of a size."""
    tracemalloc.start()
    try:
        ledger = Ledger()
        ledger.add(
            DatasetSpec(
                name="training",
                size=size,
                shard_size=max(1, size // 1000),
                batch_size=1,
                epochs=3,
                shuffle=True,
                seed=1,
            )
        )
        for request in range(300):
            for worker in ("a", "b", "c", "d"):
                for lease in ledger.lease("training", worker, 2, request):
                    if request % 7:
                        ledger.progress(lease.lease_id, lease.end, 1, worker)
            ledger.release_worker("d")
            ledger.rollback(ledger.snapshot()) if request % 50 == 49 else None
        # Threads of earlier tests allocate as well.
        own = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, f"{LEDGER}/*")])
        used = sum(trace.size for trace in own.traces)
        return used, len(json.dumps(ledger.snapshot()))
    finally:
        tracemalloc.stop()


def test_memory_does_not_depend_on_the_number_of_samples() -> None:
    work(10**3)
    small, small_snapshot = work(10**3)
    large, large_snapshot = work(10**12)
    assert 0 < large < small + 20_000
    # Longer numbers, not more of them.
    assert large_snapshot < 2 * small_snapshot


def test_memory_does_not_grow_with_the_work_done() -> None:
    ledger = Ledger()
    ledger.add(
        DatasetSpec(
            name="training", size=10**12, shard_size=100, batch_size=10, epochs=1, shuffle=True, seed=1
        )
    )
    sizes = []
    for request in range(2000):
        for lease in ledger.lease("training", "a", 3, request):
            ledger.progress(lease.lease_id, lease.end, 10, "a")
        if request in (1000, 1999):
            sizes.append(len(json.dumps(ledger.snapshot())))
    assert abs(sizes[1] - sizes[0]) < 20
