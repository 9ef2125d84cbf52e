"""Samples that cannot be read: counted once however often they are reported, by epoch, never left out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.ledger import bad_ranges
from elasticdl.master.ledger.bad_ranges import BadRanges
from elasticdl.master.ledger.ledger import DatasetSpec, Ledger, LedgerError


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
    for i in range(bad_ranges.MAX_RANGES):
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


def ranges_of(marks: list[tuple[int, int, int]]) -> BadRanges:
    ranges = BadRanges()
    for start, length, epoch in marks:
        ranges.mark(start, start + length, epoch=epoch, where=str(start), reason=str(length))
    return ranges


@given(marks=MARKS, others=MARKS)
def test_runs_are_taken_over_as_their_epochs_would_be(
    marks: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    merged, plain = ranges_of(marks), ranges_of(marks)
    merged.merge(ranges_of(others))
    for bad in ranges_of(others):
        for epoch in range(5):
            if bad.in_epoch(epoch):
                plain.mark(bad.start, bad.end, epoch=epoch, where=bad.where, reason=bad.reason)
    assert merged.to_json() == plain.to_json()


@given(marks=MARKS, epochs=st.integers(0, 7))
def test_samples_of_all_epochs_at_once(marks: list[tuple[int, int, int]], epochs: int) -> None:
    ranges = ranges_of(marks)
    one_by_one = [sum(bad.end - bad.start for bad in ranges.in_epoch(epoch)) for epoch in range(epochs)]
    assert ranges.by_epoch(epochs) == one_by_one


@given(
    marks=st.lists(st.tuples(st.integers(0, 29), st.integers(1, 12), st.integers(0, 4)), max_size=15),
    steps=st.lists(st.integers(0, 7), max_size=40),
)
def test_skipped_by_epoch_equals_skipped_of_each_epoch(
    marks: list[tuple[int, int, int]], steps: list[int]
) -> None:
    """In epochs that are done, that are not, and that overlap."""
    ledger = Ledger()
    spec = DatasetSpec(
        name="t", size=30, shard_size=7, batch_size=5, epochs=4, shuffle=True, seed=4, overlapping=True
    )
    ledger.add(spec)
    for start, length, epoch in marks:
        ledger.mark_bad("t", start, min(30, start + length), "", "", epoch=epoch)
    for request, step in enumerate(steps, start=1):
        worker = f"worker-{request % 3}"
        ledger.lease("t", worker, 1, request)
        for lease in ledger.held_by(worker)[:1]:
            ledger.progress(lease.lease_id, min(lease.end, lease.position + step), 1, worker)
    so_far = range(ledger.epoch("t") + 1)
    assert ledger.skipped_by_epoch("t") == [ledger.skipped("t", epoch) for epoch in so_far]


def test_a_run_of_very_many_epochs_is_taken_over_whole() -> None:
    known = BadRanges.from_json([[0, 5, "w", "r", [[0, 10**12]]]])
    ranges = ranges_of([(3, 4, 7)])
    ranges.merge(known)
    assert [(bad.start, bad.end, bad.epochs) for bad in ranges] == [
        (0, 3, ((0, 10**12),)),
        (3, 5, ((0, 10**12),)),
        (5, 7, ((7, 7),)),
    ]
