"""The time of a line of a log: its own, if it has one that can be trusted, else that of its file."""

from __future__ import annotations

import time

import pytest

from elasticdl.catalog.log_order import LineClock, own_time


@pytest.fixture(autouse=True)
def _far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("2026-11-18 03:20:07,250 INFO elasticdl.master: x", 1_794_990_007.25),
        ("[INFO 2026-11-18 03:20:07,250 edl] x", 1_794_990_007.25),
        ("2026-11-18 03:20:07.25: I tensorflow/core x", 1_794_990_007.25),
        ("2026-11-18T08:20:07.25Z x", 1_794_990_007.25),
        ("2026-11-18T09:20:07.25+01:00 x", 1_794_990_007.25),
        ("2026-11-18T09:20:07 x", 1_795_011_607.0),
        ("Epoch 3 of 4", None),
        ("2026-99-99 03:20:07 x", None),
        ("", None),
    ],
)
def test_own_time_of_a_line(line: str, seconds: float | None) -> None:
    assert own_time(line) == seconds


def test_line_without_a_time_comes_with_its_file_or_with_the_line_before() -> None:
    clock = LineClock()
    assert clock.moment("Traceback:", 1000.0) == 1000.0
    assert clock.moment("  more of it", None) == 1000.0


def test_own_time_counts_only_near_that_of_the_file() -> None:
    clock = LineClock()
    line = "2026-11-18T08:20:07.25Z x"
    assert clock.moment(line, 1_794_990_007.0) == 1_794_990_007.25
    assert LineClock().moment(line, 1000.0) == 1000.0


def test_log_is_never_reordered() -> None:
    clock = LineClock()
    assert clock.moment("x", 1000.0) == 1000.0
    assert clock.moment("x", 990.0) == 1000.0
