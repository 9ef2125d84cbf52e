"""xDeepFM on clicks, in PyTorch: products of features of any order (a compressed interaction network), weights, and a
deep network over the same embeddings.

Lian et al., xDeepFM: Combining Explicit and Implicit Feature Interactions, 2018. The data is that of `torch_clicks.py`.
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


class Interactions(nn.Module):
    """Of every layer each map is a weighted sum of products of the layer before with the features, number by number."""

    def __init__(self, fields, maps):
        super().__init__()
        before = [fields, *maps[:-1]]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(count, last, fields) / (last * fields) ** 0.5)
            for last, count in zip(before, maps, strict=True)
        )

    def forward(self, vectors):
        found, last = [], vectors
        for weights in self.weights:
            # For each sample: (layer, dimension) and (fields, dimension) -> (pairs, dimension) -> (maps, dimension).
            pairs = (last.unsqueeze(2) * vectors.unsqueeze(1)).flatten(1, 2)
            last = torch.relu(torch.matmul(weights.flatten(1), pairs))
            found.append(last.sum(2))
        return torch.cat(found, dim=1)


class XDeepFM(nn.Module):
    def __init__(self, dimension, maps, hidden):
        super().__init__()
        self.categories = embedding(1 + dimension, "categories")
        self.linear = nn.Linear(NUMBERS, 1)
        self.interactions = Interactions(CATEGORIES, maps)
        self.deep = Perceptron(CATEGORIES * dimension + NUMBERS, hidden)
        self.out = nn.Linear(sum(maps), 1)

    def forward(self, numbers, ids):
        rows = self.categories(ids)
        weights, vectors = rows[..., 0], rows[..., 1:]
        deep = self.deep(torch.cat([vectors.flatten(1), numbers], dim=1))
        products = self.out(self.interactions(vectors))
        return (self.linear(numbers) + deep + products).squeeze(1) + weights.sum(1)


def custom_model(dimension: int = 16, maps: tuple[int, ...] = (16, 16), hidden: tuple[int, ...] = (64, 32)):
    return XDeepFM(dimension, maps, hidden)
