"""A short run of every fuzzer, always the same one. `make fuzz` runs them for long."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.__main__ import TARGETS

ROUNDS = 60


@pytest.mark.parametrize("target", TARGETS)
def test_nonsense_is_answered_in_words(target: str) -> None:
    with TARGETS[target]() as one_round:
        for number in range(ROUNDS):
            one_round(random.Random(f"1/{number}"))


@pytest.mark.parametrize("number", [1545, 2273])
def test_parquet_with_damaged_names(number: int) -> None:
    with TARGETS["parquet"]() as one_round:
        one_round(random.Random(f"7/{number}"))
