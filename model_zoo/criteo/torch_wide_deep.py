"""Wide & Deep on clicks, in PyTorch: a weight for each id, and a deep network over embeddings.

Cheng et al., Wide & Deep Learning for Recommender Systems, 2016. The data is that of `torch_clicks.py`.
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


class WideAndDeep(nn.Module):
    def __init__(self, dimension, hidden):
        super().__init__()
        self.wide = embedding(1, "wide")
        self.linear = nn.Linear(NUMBERS, 1)
        self.categories = embedding(dimension, "deep")
        self.deep = Perceptron(CATEGORIES * dimension + NUMBERS, hidden)

    def forward(self, numbers, ids):
        wide = self.linear(numbers) + self.wide(ids).sum(1)
        deep = self.deep(torch.cat([self.categories(ids).flatten(1), numbers], dim=1))
        return (wide + deep).squeeze(1)


def custom_model(dimension: int = 16, hidden: tuple[int, ...] = (64, 32)):
    return WideAndDeep(dimension, hidden)
