"""The model of this benchmark in Paddle, without its table: a linear part, the factorization machine, and an MLP.

The linear part and the MLP are over numbers and rows, the factorization machine is over the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import nn

from benchmarks.parameter_servers import clicks


class DeepFM(nn.Layer):  # type: ignore[misc]
    def __init__(self, layers: tuple[int, ...]) -> None:
        super().__init__()
        above = width = clicks.NUMBERS + clicks.CATEGORIES * clicks.WIDTH
        self.linear = nn.Linear(width, 1)
        deep: list[Any] = []
        for units in layers:
            deep += [nn.Linear(above, units), nn.ReLU()]
            above = units
        self.deep = nn.Sequential(*deep, nn.Linear(above, 1))
        assert sum(int(np.prod(each.shape)) for each in self.parameters()) == clicks.dense_parameters(layers)

    def forward(self, numbers: Any, rows: Any) -> Any:
        flat = paddle.concat([numbers, rows.reshape([-1, clicks.CATEGORIES * clicks.WIDTH])], 1)
        together = rows.sum(1)
        pairs = 0.5 * (together * together - (rows * rows).sum(1)).sum(1)
        return self.linear(flat)[:, 0] + self.deep(flat)[:, 0] + pairs
