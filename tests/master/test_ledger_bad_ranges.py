"""Samples that cannot be read: counted once however often they are reported, by epoch, never left out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master import badranges
from elasticdl.master.badranges import BadRanges
from elasticdl.master.ledger import DatasetSpec, Ledger, LedgerError


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.add(
        DatasetSpec(name="training", size=100, shard_size=10, batch_size=5, epochs=2, shuffle=True, seed=4)
    )
    return ledger


def test_a_range_reported_twice_is_recorded_once(ledger: Ledger) -> None:
    assert ledger.mark_bad("training", 10, 20, "file:100", "checksum") == 10
    assert ledger.mark_bad("training", 10, 20, "file:100", "checksum") == 0
    assert ledger.mark_bad("training", 15, 25, "file:100", "checksum") == 5
    assert ledger.skipped("training") == 15
    assert [(b.start, b.end) for b in ledger.bad_ranges("training")] == [(10, 20), (20, 25)]


def test_only_what_has_been_passed_is_skipped(ledger: Ledger) -> None:
    (lease,) = ledger.lease("training", "a", 1, 1)
    ledger.mark_bad("training", lease.start, lease.start + 8, "file:0", "checksum")
    assert ledger.skipped("training", 0) == 0
    ledger.progress(lease.lease_id, lease.start + 5, 1, "a")
    assert ledger.skipped("training", 0) == 5
    ledger.release(lease.lease_id)
    assert ledger.skipped("training", 0) == 5
    (rest,) = ledger.lease("training", "b", 1, 1)
    ledger.progress(rest.lease_id, rest.end, 1, "b")
    assert ledger.skipped("training", 0) == 8


def test_a_range_across_shards_counts_where_it_was_passed(ledger: Ledger) -> None:
    ledger.mark_bad("training", 5, 95, "file:0", "lost")
    passed = 0
    for lease in ledger.lease("training", "a", 4, 1):
        ledger.progress(lease.lease_id, lease.end, 2, "a")
        passed += min(lease.end, 95) - max(lease.start, 5)
    assert ledger.skipped("training", 0) == passed
    assert ledger.skipped("training") == 90


def test_each_epoch_has_its_own(ledger: Ledger) -> None:
    for epoch, bad in enumerate([(0, 3), (2, 6)]):
        leases = ledger.lease("training", "a", 10, epoch)
        ledger.mark_bad("training", *bad, "file:0", "checksum")
        for lease in leases:
            ledger.progress(lease.lease_id, lease.end, 2, "a")
    assert (ledger.skipped("training", 0), ledger.skipped("training", 1)) == (3, 4)
    assert ledger.skipped("training") == 6


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 5), (95, 101)])
def test_a_range_outside_of_the_data_is_refused(ledger: Ledger, start: int, end: int) -> None:
    with pytest.raises(LedgerError, match="is no range of the 100 samples"):
        ledger.mark_bad("training", start, end, "", "")


def test_too_many_places_are_refused_and_not_forgotten() -> None:
    ranges = BadRanges()
    for i in range(badranges.MAX_RANGES):
        ranges.mark(2 * i, 2 * i + 1, epoch=0, where="w", reason="r")
    before = ranges.to_json()
    with pytest.raises(LedgerError, match=r"more than 10000 places.*\[99999, 100000\) at file:9"):
        ranges.mark(99_999, 100_000, epoch=0, where="file:9", reason="r")
    assert ranges.to_json() == before
    assert ranges.mark(0, 1, epoch=1, where="w", reason="r") == 0


MARKS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(0, 4)), max_size=15)


@given(marks=MARKS, others=MARKS)
def test_ranges_are_the_sets_they_stand_for(
    marks: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    expected: set[tuple[int, int]] = set()

    def marked(marks: list[tuple[int, int, int]], known: set[tuple[int, int]]) -> BadRanges:
        ranges = BadRanges()
        mine: set[int] = set()
        for start, length, epoch in marks:
            samples = set(range(start, start + length))
            new = ranges.mark(start, start + length, epoch=epoch, where=str(start), reason="r")
            assert new == len(samples - mine)
            mine |= samples
            known |= {(epoch, sample) for sample in samples}
        return ranges

    ranges = marked(marks, expected)
    ranges.merge(BadRanges.from_json(json.loads(json.dumps(marked(others, expected).to_json()))))
    found = [(epoch, i) for epoch in range(5) for b in ranges.in_epoch(epoch) for i in range(b.start, b.end)]
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert ranges.samples == len({sample for _, sample in expected})
    starts = [b.start for b in ranges]
    assert starts == sorted(starts)
