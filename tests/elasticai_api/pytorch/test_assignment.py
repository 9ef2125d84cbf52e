"""The assignment of micro-batches of a step to members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticai_api.pytorch.assignment import shares, usual_share, valid_claims


@given(st.integers(0, 20), st.integers(1, 8))
def test_the_usual_shares_are_everything_once_and_even(count: int, size: int) -> None:
    parts = [usual_share(count, size, rank) for rank in range(size)]
    assert sorted(offset for part in parts for offset in part) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(1, 20), st.integers(1, 8))
def test_without_claims_a_round_divides_as_usual(count: int, size: int) -> None:
    assert shares([set()] * size, count) == [usual_share(count, size, rank) for rank in range(size)]


@given(st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=5))
def test_valid_claims_are_kept_and_the_rest_is_divided(claims: list[set[int]]) -> None:
    valid = valid_claims(claims)
    parts = shares(valid, 12)
    assert sorted(offset for part in parts for offset in part) == list(range(12))
    for claim, part in zip(valid, parts, strict=True):
        assert claim <= set(part)


def test_claim_that_overlaps_an_earlier_one_is_void() -> None:
    assert valid_claims([{0, 1}, {1, 2}, {3}]) == [{0, 1}, set(), {3}]
