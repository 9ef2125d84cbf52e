"""The page of figures is what its script makes of the newest results, which support its claims."""

from __future__ import annotations

from benchmarks.performance.__main__ import IMAGES, PAGE, RESULTS
from benchmarks.performance.page import build
from benchmarks.performance.run_log import newest


def test_page_and_plots_are_those_of_the_newest_results() -> None:
    text = PAGE.read_text()
    made, plots = build(text, newest(RESULTS))
    assert made == text, "run `python -m benchmarks.performance`"
    for name, plot in plots.items():
        assert (IMAGES / name).read_text() == plot, "run `python -m benchmarks.performance`"
