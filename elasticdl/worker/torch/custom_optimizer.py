"""An optimizer of the user's own (`elasticdl.Optimizer`) as one of PyTorch's: for schedules, callbacks and checkpoints,
and to train with where there are no parameter servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from elasticdl.errors import UserError
from elasticdl.ps.embedding.custom_optimizer import CustomRule, Optimizer
from elasticdl.worker.torch.tensors import to_array


class CustomOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    def __init__(self, parameters: Sequence[Any], optimizer: Optimizer) -> None:
        if not isinstance(optimizer.learning_rate, (int, float)):
            raise UserError(
                f"The learning rate of {type(optimizer).__name__} is {optimizer.learning_rate!r}, and no number.",
                hint="A schedule is the second of a pair that optimizer() returns.",
            )
        self.custom = optimizer
        self._rule = CustomRule(optimizer)
        super().__init__(parameters, {"lr": optimizer.learning_rate})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    # A table's handle has no numbers.
                    if parameter.grad is not None and parameter.numel():
                        self._update(parameter, float(group["lr"]))
        return loss

    def _update(self, parameter: Any, learning_rate: float) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            for slot, initial in self._rule.slots.items():
                state[slot] = torch.full_like(parameter, initial)
        state["step"] += 1
        value, slots = self._rule.update(
            f"a parameter of shape {list(parameter.shape)}",
            to_array(parameter).copy(),
            to_array(parameter.grad.to_dense()).copy(),
            {slot: to_array(state[slot]).copy() for slot in self._rule.slots},
            learning_rate,
            state["step"],
        )
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
        for slot, array in slots.items():
            state[slot].copy_(torch.from_numpy(np.ascontiguousarray(array)))


def as_torch(optimizer: Optimizer, parameters: Sequence[Any]) -> CustomOptimizer:
    # Checkpoints and messages tell of an optimizer by the name of its class.
    kind = type(type(optimizer).__name__, (CustomOptimizer,), {})
    made: CustomOptimizer = kind(parameters, optimizer)
    return made
