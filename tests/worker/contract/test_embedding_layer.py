"""Every framework: embeddings with tables outside of a job look up, combine and create rows, and check arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from tests.worker.contract.framework import IDS, WITH_BAGS, Framework, load_with_bags

BAGS, WEIGHTS = [[5, 7], [], [9, 5, 5]], [[1.0, 3.0], [], [2.0, 1.0, 0.5]]


def test_only_training_creates_rows(framework: Framework) -> None:
    layer = framework.embedding(4)
    first = framework.look_up(layer, IDS)
    assert framework.own_rows(layer) == 0
    np.testing.assert_array_equal(framework.look_up(layer, IDS, training=True), first)
    assert framework.own_rows(layer) == 20


@pytest.mark.parametrize("name", WITH_BAGS)
@pytest.mark.parametrize(
    ("combiner", "expected", "weighted"),
    [
        ("sum", lambda r: [r[5] + r[7], r[9] + 2 * r[5]], lambda r: [r[5] + 3 * r[7], 2 * r[9] + 1.5 * r[5]]),
        (
            "mean",
            lambda r: [(r[5] + r[7]) / 2, (r[9] + 2 * r[5]) / 3],
            lambda r: [(r[5] + 3 * r[7]) / 4, (2 * r[9] + 1.5 * r[5]) / 3.5],
        ),
        (
            "sqrtn",
            lambda r: [(r[5] + r[7]) / 2**0.5, (r[9] + 2 * r[5]) / 3**0.5],
            lambda r: [(r[5] + 3 * r[7]) / 10**0.5, (2 * r[9] + 1.5 * r[5]) / 5.25**0.5],
        ),
    ],
    ids=["sum", "mean", "sqrtn"],
)
def test_bags_are_combined_in_every_form(name: str, combiner: str, expected: Any, weighted: Any) -> None:
    framework = load_with_bags(name)
    layer = framework.bag(4, combiner, initializer="normal", name="bags")
    single = framework.embedding(4, initializer="normal", name="bags")
    rows = {number: framework.look_up(single, [[number]])[0, 0] for number in (5, 7, 9)}
    forms = framework.combine(layer, BAGS, WEIGHTS)
    assert len(forms) >= 2
    for plain, with_weights in forms:
        np.testing.assert_allclose(plain[[0, 2]], expected(rows), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(with_weights[[0, 2]], weighted(rows), rtol=1e-5, atol=1e-7)
        assert not plain[1].any()
        assert not with_weights[1].any()
    np.testing.assert_allclose(framework.look_up(layer, [[5, 7]])[0], expected(rows)[0], rtol=1e-5)


def test_invalid_arguments_of_layer_are_rejected(framework: Framework) -> None:
    with pytest.raises(UserError, match="width of 0"):
        framework.embedding(0)
    with pytest.raises(UserError, match=r"float32.*whole numbers"):
        framework.look_up(framework.embedding(4), np.array([1.5], np.float32))
    with pytest.raises(UserError, match="initializer 'unifrom'"):
        framework.embedding(4, initializer="unifrom")


@pytest.mark.parametrize("name", WITH_BAGS)
def test_unknown_combiner_is_rejected(name: str) -> None:
    with pytest.raises(UserError, match=r"(combiner|mode) 'max'"):
        load_with_bags(name).bag(4, "max")
