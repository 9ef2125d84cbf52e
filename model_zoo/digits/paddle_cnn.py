"""A small convolutional network for scikit-learn's handwritten digits, in Paddle.

    elasticdl data make digits --output=data/digits
    elasticdl train --model_zoo=model_zoo --model_def=digits.paddle_cnn.custom_model \\
        --training_data=data/digits/train --validation_data=data/digits/test --num_epochs=5
"""

import paddle
from paddle import nn

from elasticdl.data.example import decode_example
from elasticdl.jobs.mode import Mode
from elasticdl.worker.scoring.metrics import Accuracy


def custom_model(filters: int = 16, dropout: float = 0.1):
    return nn.Sequential(
        nn.Conv2D(1, filters, 3, padding=1),
        nn.ReLU(),
        nn.Conv2D(filters, 2 * filters, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * filters * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def feed(dataset, mode, metadata):
    """Each record is a tf.train.Example: 8×8 pixels between 0 and 1, and which digit they show."""
    for record in dataset:
        example = decode_example(record)
        image = example["image"].reshape(1, 8, 8)
        yield image if mode is Mode.PREDICTION else (image, example["label"][0])


def loss(labels, predictions):
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters):
    return paddle.optimizer.Adam(0.002, parameters=parameters)


def eval_metrics_fn():
    return {"accuracy": Accuracy()}
