"""Custom optimizers with PyTorch's schedules, and errors in their options. `contract/` has what is common to all."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl
from elasticdl.errors import UserError
from elasticdl.worker.torch.optimizer import make_optimizer, server_config


class Adagrad(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"sum": 0.0}

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] += gradient**2
        return value - learning_rate * gradient / (np.sqrt(slots["sum"]) + 1e-10)


def test_custom_optimizer_may_have_a_schedule() -> None:
    def scheduled() -> Any:
        return Adagrad(0.5), lambda made: torch.optim.lr_scheduler.StepLR(made, 1, gamma=0.1)

    model = nn.Linear(1, 1)
    optimizer, schedule = make_optimizer(scheduled, model)
    config = server_config(optimizer, schedule)
    assert (config.name, config.flavor) == (f"{__name__}:Adagrad", "python")
    assert optimizer.param_groups[0]["lr"] == 0.5
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_rate_that_is_no_number() -> None:
    with pytest.raises(UserError, match=r"learning rate of Adagrad .* no number"):
        make_optimizer(lambda: Adagrad("fast"), nn.Linear(1, 1))
