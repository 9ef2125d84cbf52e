"""The position in a log: a response that starts over in the same second repeats no line and drops none."""

from __future__ import annotations

import pytest

from elasticdl.catalog.kubernetes.pod_logs import LogPosition, StampedLine


def test_lines_of_the_same_timestamp_are_distinguished() -> None:
    lines = [
        StampedLine.of(text.encode())
        for text in (
            "2026-11-16T05:35:01.25Z a",
            "2026-11-16T05:35:01.3Z b",
            "2026-11-16T05:35:01.3Z b",
            "2026-11-16T05:35:01.300000001Z c",
        )
    ]
    position = LogPosition()
    assert position.query() == {}
    assert [position.is_new(line) for line in lines[:2]] == [True, True]
    assert position.query() == {"sinceTime": "2026-11-16T05:35:01Z"}
    assert [position.is_new(line) for line in lines] == [False, False, True, True]


@pytest.mark.parametrize("line", [b"no moment", b"2026-11-16 is no moment", b""])
def test_line_without_a_timestamp_is_kept_as_it_is(line: bytes) -> None:
    assert StampedLine.of(line).text == line.decode()
    assert LogPosition().is_new(StampedLine.of(line))
