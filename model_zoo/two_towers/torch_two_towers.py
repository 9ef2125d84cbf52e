"""A model with two inputs and two outputs: the digits' picture and how much ink is in each of its rows go in,
which digit it is and whether it is even come out. In PyTorch.

The data is that of `digits`.
"""

import functools

import numpy as np
import torch
from torch import nn

from elasticdl.data.example import decode_example
from elasticdl.jobs.mode import Mode
from elasticdl.worker.scoring.metrics import AUC, Accuracy


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = nn.Linear(64, 64)
        self.summed = nn.Linear(8, 16)
        self.digit = nn.Linear(80, 10)
        self.even = nn.Linear(80, 1)

    def forward(self, image, ink):
        seen = torch.relu(self.seen(image.flatten(1)))
        both = torch.cat([seen, torch.relu(self.summed(ink))], dim=1)
        return {"digit": self.digit(both), "even": self.even(both).squeeze(1)}


def custom_model():
    return TwoTowers()


def feed(dataset, mode, metadata):
    for record in dataset:
        example = decode_example(record)
        image = example["image"].reshape(8, 8)
        features = {"image": image, "ink": image.sum(axis=1)}
        if mode is Mode.PREDICTION:
            yield features
        else:
            digit = example["label"][0]
            yield features, {"digit": digit, "even": np.float32(digit % 2 == 0)}


def loss(labels, predictions):
    digit = nn.functional.cross_entropy(predictions["digit"], labels["digit"])
    return digit + nn.functional.binary_cross_entropy_with_logits(predictions["even"], labels["even"])


def optimizer():
    return functools.partial(torch.optim.Adam, lr=0.003)


def eval_metrics_fn():
    return {"digit": {"accuracy": Accuracy()}, "even": {"auc": AUC(from_logits=True)}}
