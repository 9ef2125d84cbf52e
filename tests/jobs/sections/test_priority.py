"""A priority class for all workers, or for a part of them."""

from __future__ import annotations

import pytest

from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections.priority import PodPriority, PriorityGrammar, parse_priority


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("", PodPriority(class_name="")),
        ("low", PodPriority(class_name="low")),
        ("high=0.5", PodPriority(class_name="high", fraction=0.5)),
        ("0.25", PodPriority(class_name="high", fraction=0.25)),
        ("urgent=1", PodPriority(class_name="urgent", fraction=1.0)),
    ],
)
def test_priority_parses_and_formats(text: str, priority: PodPriority) -> None:
    assert parse_priority(text) == priority
    assert PriorityGrammar().parse(text) == text


def test_a_fraction_of_the_workers() -> None:
    half = parse_priority("high=0.5")
    assert [half.class_of(index, 4) for index in range(4)] == ["high", "high", "low", "low"]
    assert [parse_priority("high").class_of(index, 2) for index in range(2)] == ["high", "high"]


@pytest.mark.parametrize("text", ["high=2", "1.5", "high=", "=0.5", "High", "high=x", "high=-0.1"])
def test_wrong_priorities(text: str) -> None:
    with pytest.raises(BadValue):
        PriorityGrammar().parse(text)
