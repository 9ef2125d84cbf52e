"""The tables, plots and claims of a page follow the newest results."""

from __future__ import annotations

import pytest

from benchmarks.performance.page import Unsupported, build
from benchmarks.performance.run_log import Measured
from benchmarks.report import Result, at_least

PAGE = """Three times as fast. <!-- claim: shards | one | ratio >= 3 -->
A death costs 0.2 s. <!-- claim: shards | death | us <= 0.2 -->

<!-- results: shards -->
old
<!-- end of results -->
"""


def results(*, ours: float = 30.0, death: float = 0.1) -> dict[tuple[str, str], Measured]:
    found = [
        at_least(Result(benchmark="shards", case="one", unit="shards/s", us=ours, peer=10.0), 3.0),
        Result(benchmark="shards", case="death", unit="s", us=death),
        Result(benchmark="other", case="one", unit="s", us=1.0),
    ]
    return {
        (result.benchmark, result.case): Measured(
            result=result, started="2026-11-19T20:30:00Z", commit="c" * 40, cores=2, load=0.25
        )
        for result in found
    }


def test_table_and_plot_are_made_of_the_results() -> None:
    text, plots = build(PAGE, results())
    assert "| shards | one | 30 shards/s | 10 shards/s | 3× | ≥ 3× | pass |" in text
    assert "old" not in text
    assert "other" not in text
    assert "Measured 2026-11-19 at cccccccccccc on 2 cores with a load average of 0.2 before." in text
    assert "![Ratios to the peers: shards](images/performance-shards.svg)" in text
    assert list(plots) == ["performance-shards.svg"]
    assert "one: 3" in plots["performance-shards.svg"]


def test_rebuilt_performance_page_is_unchanged() -> None:
    text, plots = build(PAGE, results())
    assert build(text, results()) == (text, plots)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ours": 29.0}, "shards, one: the page claims ratio >= 3, the newest run found 2.9."),
        ({"death": 0.3}, "shards, death: the page claims us <= 0.2, the newest run found 0.3."),
    ],
)
def test_claim_that_the_newest_run_misses_is_rejected(changed: dict[str, float], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        build(PAGE, results(**changed))


def test_claim_without_a_result_is_rejected() -> None:
    with pytest.raises(Unsupported, match="shards, two: this was never measured"):
        build(PAGE.replace("| one |", "| two |"), results())


def test_ratio_without_a_peer_is_rejected() -> None:
    with pytest.raises(Unsupported, match="there is no peer"):
        build(PAGE.replace("us <= 0.2", "ratio >= 1"), results())
