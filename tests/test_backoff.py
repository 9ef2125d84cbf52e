"""Delays double up to the cap; jitter only shortens them."""

from __future__ import annotations

import pytest

from elasticdl.backoff import Backoff


def test_delay_after_each_failure_doubles_up_to_the_cap() -> None:
    backoff = Backoff(initial_seconds=0.5, max_seconds=5.0)
    assert [backoff.delay(failures) for failures in range(7)] == [0.0, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_delay_after_countless_failures_stays_at_the_cap() -> None:
    assert Backoff(initial_seconds=0.001, max_seconds=30.0).delay(1_000_000) == 30.0


@pytest.mark.parametrize(("drawn", "factor"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_jitter_shortens_the_delay_by_at_most_its_fraction(drawn: float, factor: float) -> None:
    backoff = Backoff(initial_seconds=1.0, max_seconds=8.0, jitter=0.5)
    assert [backoff.delay(n, uniform=lambda: drawn) for n in (1, 3, 9)] == [factor, 4 * factor, 8 * factor]


@pytest.mark.parametrize(
    ("initial", "longest", "jitter"), [(0.0, 1.0, 0.0), (2.0, 1.0, 0.0), (1.0, 2.0, -0.1), (1.0, 2.0, 1.1)]
)
def test_impossible_settings_are_rejected(initial: float, longest: float, jitter: float) -> None:
    with pytest.raises(ValueError, match=r"backoff|jitter"):
        Backoff(initial_seconds=initial, max_seconds=longest, jitter=jitter)
