"""MNIST in PyTorch, with a learning rate that sinks batch by batch and an end when nothing gets better.

    elasticdl data make mnist --source=FOLDER_OF_THE_FOUR_FILES --output=data/mnist
    elasticdl train --model_zoo=model_zoo --model_def=mnist_torch.mnist_torch.custom_model \\
        --training_data=data/mnist/train --validation_data=data/mnist/test --num_epochs=2
"""

import torch
from torch import nn

from elasticdl.data.example import decode_example
from elasticdl.jobs.mode import Mode
from elasticdl.worker.scoring.metrics import Accuracy, TopKAccuracy
from elasticdl.worker.torch.callbacks import EarlyStopping


class Classifier(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2),
            nn.ReLU(),
            nn.BatchNorm2d(2 * width),
        )
        self.drop = nn.Dropout(0.25)
        self.classify = nn.Linear(2 * width * 6 * 6, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        seen = self.convolutions(image.unsqueeze(1) / 255.0)
        return self.classify(self.drop(seen.flatten(1)))


def custom_model(width: int = 32):
    return Classifier(width)


def feed(dataset, mode, metadata):
    """Each record is a tf.train.Example: 28×28 pixels from 0 to 255, and which digit they show."""
    for record in dataset:
        example = decode_example(record)
        image = example["image"].reshape(28, 28)
        yield image if mode is Mode.PREDICTION else (image, example["label"][0])


def loss(labels, predictions):
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters):
    adam = torch.optim.Adam(parameters, lr=0.001)
    return adam, torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 0.9995**step)


def callbacks():
    return [EarlyStopping("val_accuracy", patience=2)]


def eval_metrics_fn():
    return {"accuracy": Accuracy(), "top_3": TopKAccuracy(3)}
