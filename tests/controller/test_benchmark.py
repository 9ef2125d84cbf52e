"""The benchmark of the controller's decisions, with few jobs."""

from __future__ import annotations

from benchmarks.controller_scale import measure


def test_benchmark_runs_and_measures() -> None:
    measured = measure(5)
    assert measured.change > 0
    assert measured.first > 0
    assert measured.steady > 0
