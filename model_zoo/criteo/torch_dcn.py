"""Deep & Cross on clicks, in PyTorch: layers that multiply the features with themselves, beside a deep network.

Wang et al., DCN V2: Improved Deep & Cross Network, 2021. The data is that of `torch_clicks.py`.
"""

import torch
from torch import nn

from .torch_clicks import (
    CATEGORIES,
    NUMBERS,
    Perceptron,
    embedding,
    eval_metrics_fn,
    feed,
    loss,
    optimizer,
)

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


class DeepAndCross(nn.Module):
    def __init__(self, dimension, crosses, rank, hidden):
        super().__init__()
        width = CATEGORIES * dimension + NUMBERS
        self.categories = embedding(dimension, "categories", stddev=0.1)
        # Each W is the product of two thin matrices.
        self.down = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(crosses))
        self.up = nn.ModuleList(nn.Linear(rank, width) for _ in range(crosses))
        self.deep = Perceptron(width, hidden, outputs=0)
        self.out = nn.Linear(width + hidden[-1], 1)

    def forward(self, numbers, ids):
        given = crossed = torch.cat([self.categories(ids).flatten(1), numbers], dim=1)
        for down, up in zip(self.down, self.up, strict=True):
            crossed = given * up(down(crossed)) + crossed
        return self.out(torch.cat([crossed, self.deep(given)], dim=1)).squeeze(1)


def custom_model(dimension: int = 16, crosses: int = 2, rank: int = 32, hidden: tuple[int, ...] = (64, 32)):
    return DeepAndCross(dimension, crosses, rank, hidden)
