"""Mistakes in a custom optimizer are reported before they reach the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import elasticdl
from elasticdl.errors import UserError
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import CustomRule
from elasticdl.ps.embedding.optimizers import CustomOptimizer


class Odd(elasticdl.Optimizer):
    def __init__(self, returned: Any = None, changed: Any = ()) -> None:
        super().__init__()
        self.slots: Any = {"m": 0.0}
        self._returned, self._changed = returned, changed

    def update(
        self, value: Array, gradient: Array, slots: dict[str, Array], learning_rate: float, step: Any
    ) -> Array:
        slots.update(self._changed)
        returned: Array = self._returned
        return returned


def returning(what: Any, **changed: Any) -> CustomRule:
    return CustomRule(Odd(what, changed))


@pytest.mark.parametrize(
    ("rule", "describe_error"),
    [
        (returning(None), "returns nothing for w"),
        (returning(np.zeros(3)), r"makes \[3\] of w, which is \[2\]"),
        (returning(np.array([np.nan, 1.0])), "not finite"),
        # No number any more in float32.
        (returning(np.array([1e39, 1.0])), "numbers of w that are not finite"),
        (returning(np.zeros(2), m=np.array([1e39, 1.0])), "numbers of m of w that are not finite"),
        (returning(np.array([1j, 2j])), "makes complex128 of w"),
        (returning(["a", "b"]), "makes <U1 of w"),
        (returning(np.zeros(2), m=np.zeros(1)), "of m of w"),
        (returning(np.zeros(2), n=np.zeros(2)), "other slots .* n"),
    ],
)
def test_invalid_return_value_is_rejected(rule: CustomRule, describe_error: str) -> None:
    value = np.ones(2, np.float32)
    with pytest.raises(UserError, match=describe_error):
        rule.update("w", value, value, {"m": value}, 0.1, 1)


def with_slots(slots: Any) -> CustomRule:
    odd = Odd()
    odd.slots = slots
    return CustomRule(odd)


def test_slots_are_names_and_numbers() -> None:
    with pytest.raises(UserError, match=r"slots of the optimizer Odd are \['m'\]"):
        with_slots(["m"])
    with pytest.raises(UserError, match="9 slots: 8 are the most"):
        with_slots({f"m{number}": 0.0 for number in range(9)})
    with pytest.raises(UserError, match="given to it anyway"):
        CustomOptimizer(with_slots({"step": 0.0}))
