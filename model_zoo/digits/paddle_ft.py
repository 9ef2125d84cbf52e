"""Handwritten digits in a Paddle training loop of its own, whose trainers come and go.

    elasticdl train --job_command="python -m model_zoo.digits.paddle_ft" --num_workers=2

`python -m model_zoo.digits.paddle_ft` alone does the same without a job. The digits come with scikit-learn. All
trainers share a state in the folder of --model: whichever of them is killed, nothing that counts as done is lost.
"""

from __future__ import annotations

import argparse

import numpy as np
import paddle
from paddle import nn
from sklearn.datasets import load_digits

from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.paddle.fault_tolerance import FaultTolerantTrainer

TRAINED = 1437


def make_model() -> nn.Layer:
    paddle.seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def main(arguments: argparse.Namespace) -> None:
    pixels, labels = load_digits(return_X_y=True)
    images, digits = (pixels / 16).astype(np.float32), labels.astype(np.int64)
    model = make_model()
    optimizer = paddle.optimizer.Adam(0.003, parameters=model.parameters())
    service = build_data_shard_service(
        batch_size=arguments.batch_size,
        num_epochs=arguments.num_epochs,
        dataset_size=TRAINED,
        shuffle_shards=True,
        num_minibatches_per_shard=4,
        dataset_name="digits",
    )
    trainer = FaultTolerantTrainer(model, optimizer, service, arguments.model)
    if trainer.is_restored:
        print(f"Goes on from {arguments.model}, version {trainer.version}", flush=True)
    for shard in trainer.shards():
        for start in range(shard.start, shard.end, arguments.batch_size):
            batch = slice(start, min(start + arguments.batch_size, shard.end))
            predictions = model(paddle.to_tensor(images[batch]))
            nn.functional.cross_entropy(predictions, paddle.to_tensor(digits[batch])).backward()
            optimizer.step()
            optimizer.clear_grad()
    found = model(paddle.to_tensor(images[TRAINED:])).numpy().argmax(axis=1)
    print(f"Final accuracy: {(found == digits[TRAINED:]).mean():.4f}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m model_zoo.digits.paddle_ft")
    parser.add_argument(
        "--model", default="out/digits-paddle", help="folder of the state [default: %(default)s]"
    )
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_epochs", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    main(parse())
