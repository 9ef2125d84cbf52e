"""DeepFM in PyTorch, from the rows of a batch on: the sides differ in the source of the rows."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.parameter_servers.clicks import CATEGORIES, NUMBERS, WIDTH


class DeepFM(nn.Module):  # type: ignore[misc]
    """A linear part over numbers and rows, the factorization machine over the rows, and an MLP over both."""

    def __init__(self, layers: tuple[int, ...]) -> None:
        super().__init__()
        width = NUMBERS + CATEGORIES * WIDTH
        self.linear = nn.Linear(width, 1)
        deep: list[nn.Module] = []
        above = width
        for units in layers:
            deep += [nn.Linear(above, units), nn.ReLU()]
            above = units
        self.deep = nn.Sequential(*deep, nn.Linear(above, 1))

    def forward(self, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Returns one logit per sample. Rows: samples × categories × width."""
        flat = torch.cat([numbers, rows.reshape(len(rows), CATEGORIES * WIDTH)], 1)
        together = rows.sum(1)
        pairs = 0.5 * (together * together - (rows * rows).sum(1)).sum(1)
        logits: torch.Tensor = self.linear(flat)[:, 0] + self.deep(flat)[:, 0] + pairs
        return logits
