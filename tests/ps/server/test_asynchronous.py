"""Asynchronous training: every push is applied at once; the learning rate may shrink with staleness."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_old_gradients_are_applied_as_they_come(make_store: Any) -> None:
    small = make_store()
    for sequence in (1, 2, 3):
        assert small.push([1.0, 0.0], sequence=sequence, version=0).version == sequence
    assert small.x == [-0.5, 2.0]


def test_the_learning_rate_is_divided_by_staleness_above_one(make_store: Any) -> None:
    small = make_store(lr_staleness_modulation=True)
    expected = 1.0
    for sequence, staleness, rate in ((1, 0, 0.5), (2, 1, 0.5), (3, 2, 0.25), (4, 3, 0.5 / 3)):
        small.push([1.0, 0.0], sequence=sequence, version=small.version - staleness)
        expected -= rate
        np.testing.assert_allclose(small.x, [expected, 2.0], rtol=1e-6)


def test_state_is_that_of_the_last_writer(make_store: Any) -> None:
    small = make_store()
    small.push([0.0, 0.0], worker="a", sequence=1, state={"mean": np.array([3.0])})
    small.push([0.0, 0.0], worker="b", sequence=1, state={"mean": np.array([4.0])})
    small.push([0.0, 0.0], worker="a", sequence=2)
    assert list(small.pull().state["mean"]) == [4.0]
    # A repetition is not a new word.
    small.push([0.0, 0.0], worker="b", sequence=1, state={"mean": np.array([5.0])})
    assert list(small.pull().state["mean"]) == [4.0]


def test_pull_of_known_version_is_empty(make_store: Any) -> None:
    small = make_store()
    small.push([1.0, 1.0])
    assert small.pull(known_version=1).unchanged
    assert not small.pull(known_version=1).trainable
    assert not small.pull(known_version=0).unchanged
    assert small.pull(known_version=-1).trainable
