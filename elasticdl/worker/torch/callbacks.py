"""Callbacks for model definitions in PyTorch (`training/definition_callbacks.py`): the rate is that of all groups of
parameters.
"""

from __future__ import annotations

from typing import Any

from elasticdl.worker.training.definition_callbacks import (
    EarlyStopping,
    RateOfEpoch,
    RateOnPlateau,
    TensorBoard,
)

__all__ = ["EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau", "TensorBoard"]


class _Groups:
    """The learning rates of an optimizer of PyTorch."""

    _optimizer: Any

    def read_rate(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    def write_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate


class LearningRateScheduler(_Groups, RateOfEpoch):
    """The learning rate of each epoch from a function of (epoch) or of (epoch, present rate)."""


class ReduceLROnPlateau(_Groups, RateOnPlateau):
    """Multiplies the learning rate by `factor` when a metric has not got better for `patience` epochs."""
