"""Callbacks for model definitions in Paddle (`training/definition_callbacks.py`).

Those that set the learning rate need an optimizer whose rate is a number: Paddle does not let the rate of a schedule be
set.
"""

from __future__ import annotations

from typing import Any

from elasticdl.worker.paddle.learning_rate_schedule import set_rate
from elasticdl.worker.training.definition_callbacks import (
    EarlyStopping,
    RateOfEpoch,
    RateOnPlateau,
    TensorBoard,
)

__all__ = ["EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau", "TensorBoard"]


class _Rate:
    """The learning rate of an optimizer of Paddle."""

    _optimizer: Any

    def read_rate(self) -> float:
        return float(self._optimizer.get_lr())

    def write_rate(self, rate: float) -> None:
        set_rate(self._optimizer, rate)


class LearningRateScheduler(_Rate, RateOfEpoch):
    """The learning rate of each epoch from a function of (epoch) or of (epoch, present rate)."""


class ReduceLROnPlateau(_Rate, RateOnPlateau):
    """Multiplies the learning rate by `factor` when a metric has not got better for `patience` epochs."""
