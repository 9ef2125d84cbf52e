"""Numbers that a model definition records: averaged until they are reported, bounded in number."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.worker import scalars
from elasticdl.worker.scalars import MOST_NAMES, scalar, take_scalars


@pytest.fixture(autouse=True)
def nothing_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "_names", set())
    monkeypatch.setattr(scalars, "_sums", {})


def test_values_since_last_report_are_averaged() -> None:
    scalar("a/x", 1)
    scalar("a/x", np.float32(3.0))
    assert take_scalars() == {"a/x": 2.0}
    assert take_scalars() == {}


def test_value_that_is_not_finite_is_left_out() -> None:
    scalar("x", float("nan"))
    scalar("y", float("inf"))
    scalar("y", 1.0)
    assert take_scalars() == {"y": 1.0}


def test_too_many_names_are_an_error_that_counts_them() -> None:
    for number in range(MOST_NAMES):
        scalar(f"name-{number}", 0.0)
    scalar("name-0", 0.0)
    with pytest.raises(ValueError, match="at most 100 names"):
        scalar("one more", 0.0)


@pytest.mark.parametrize("name", ["", "x" * 101])
def test_name_of_wrong_length_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 100 characters"):
        scalar(name, 0.0)


def test_value_that_is_no_number_is_an_error() -> None:
    with pytest.raises((TypeError, ValueError)):
        scalar("x", "many")  # type: ignore[arg-type]
