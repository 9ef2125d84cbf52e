"""Clicks in the columns of Criteo's logs for Paddle: what the models beside this module have in common.

    elasticdl data make criteo-like --rows=50000 --output=data/criteo

A row has a label, 13 numbers and 26 categories, separated by tabs as in the logs, or by commas below a header; any
number or category may be missing. Rows to predict for need no label. Tables (Parquet) and Examples (RecordIO, TFRecord)
have the same in columns called label, I1 to I13 and C1 to C26.
"""

import math
import zlib

import numpy as np
import paddle
from paddle import nn

import elasticdl.paddle
from elasticdl.data.example import decode_example
from elasticdl.worker.scoring.metrics import AUC, Accuracy

NUMBERS = 13
CATEGORIES = 26
_NAMES = [
    *(f"I{number + 1}" for number in range(NUMBERS)),
    *(f"C{number + 1}" for number in range(CATEGORIES)),
]
# Where the ids of each column begin: the same text in two columns is two ids.
_COLUMNS = [(column + 1) << 34 for column in range(CATEGORIES)]


def feed(dataset, mode, metadata):
    for record in dataset:
        label, cells = _cells(record)
        features = {
            "numbers": np.array([_squeezed(cell) for cell in cells[:NUMBERS]], np.float32),
            "ids": np.array(
                [first + _number(cell) for first, cell in zip(_COLUMNS, cells[NUMBERS:], strict=True)],
                np.int64,
            ),
        }
        yield features if label is None else (features, np.float32(label))


def _cells(record):
    """The label, if there is one, and what is in the other columns."""
    if isinstance(record, bytes):
        record = {name: values[0] if len(values) else None for name, values in decode_example(record).items()}
    if isinstance(record, dict):
        return record.get("label"), [record[name] for name in _NAMES]
    return (record[0], record[1:]) if len(record) > NUMBERS + CATEGORIES else (None, record)


def _squeezed(cell):
    """Counts are spread over many magnitudes; a missing one is 0."""
    value = float(cell or 0)
    if math.isnan(value):
        return 0.0
    return math.log1p(value) if value > 0 else value


def _number(cell):
    """Criteo writes categories as eight hexadecimal digits; any other text is hashed. A missing one is one, too."""
    if not cell:
        return 1 << 32
    try:
        return int(cell, 16) & 0xFFFFFFFF
    except ValueError:
        return zlib.crc32(cell.encode() if isinstance(cell, str) else cell)


def loss(labels, predictions):
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


def optimizer(parameters):
    return paddle.optimizer.Adagrad(0.05, initial_accumulator_value=0.1, epsilon=1e-7, parameters=parameters)


def eval_metrics_fn():
    return {"auc": AUC(from_logits=True), "accuracy": Accuracy(threshold=0.0)}


def embedding(width, name, stddev=0.01):
    """A row of so many numbers for each id of all 26 columns."""
    return elasticdl.paddle.Embedding(width, name=name, initializer={"kind": "normal", "stddev": stddev})


class Perceptron(nn.Sequential):
    def __init__(self, inputs, hidden, outputs=1):
        layers = []
        for units in hidden:
            layers += [nn.Linear(inputs, units), nn.ReLU()]
            inputs = units
        super().__init__(*layers, *([nn.Linear(inputs, outputs)] if outputs else []))
