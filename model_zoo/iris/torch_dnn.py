"""Irises from a CSV file: four measures and the name of the species, in a dense network, in PyTorch.

elasticdl data make iris --output=data/iris
"""

import numpy as np
import torch
from torch import nn

from elasticdl.worker.scoring.metrics import F1, Accuracy

SPECIES = ["Iris-setosa", "Iris-versicolor", "Iris-virginica"]


def custom_model(hidden: int = 16):
    return nn.Sequential(
        nn.Linear(4, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, len(SPECIES)),
    )


def feed(dataset, mode, metadata):
    """A record of a CSV file is a list of strings, one a column; rows to predict for need no species."""
    for row in dataset:
        measures = np.array(row[:4], np.float32)
        yield (measures, SPECIES.index(row[4])) if len(row) > 4 else measures


def loss(labels, predictions):
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=0.02)


def eval_metrics_fn():
    return {"accuracy": Accuracy(), "f1": F1(num_classes=len(SPECIES))}
