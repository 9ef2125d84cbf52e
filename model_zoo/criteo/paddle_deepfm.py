"""DeepFM on clicks, in Paddle: products of all pairs of features, and a deep network over the same embeddings.

Guo et al., DeepFM: A Factorization-Machine based Neural Network for CTR Prediction, 2017. The data is that of
`paddle_clicks.py`.
"""

import paddle
from paddle import nn

from .paddle_clicks import (
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


class DeepFM(nn.Layer):
    def __init__(self, dimension, hidden):
        super().__init__()
        # One lookup: of each row the first number is the id's weight, the others are its vector.
        self.categories = embedding(1 + dimension, "categories")
        self.linear = nn.Linear(NUMBERS, 1)
        self.vectors = self.create_parameter(
            [NUMBERS, dimension], default_initializer=nn.initializer.Normal(std=0.01)
        )
        self.deep = Perceptron(CATEGORIES * dimension + NUMBERS, hidden)

    def forward(self, numbers, ids):
        rows = self.categories(ids)
        weights, vectors = rows[:, :, 0], rows[:, :, 1:]
        first = self.linear(numbers).squeeze(1) + weights.sum(1)
        scaled = numbers.unsqueeze(2) * self.vectors
        total = vectors.sum(1) + scaled.sum(1)
        squares = (vectors * vectors).sum(1) + (scaled * scaled).sum(1)
        pairs = 0.5 * (total * total - squares).sum(1)
        deep = self.deep(paddle.concat([vectors.flatten(1), numbers], axis=1)).squeeze(1)
        return first + pairs + deep


def custom_model(dimension: int = 16, hidden: tuple[int, ...] = (64, 32)):
    return DeepFM(dimension, hidden)
