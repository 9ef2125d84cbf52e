"""Irises in a plain Paddle training loop that fetches its shards from the master of the job.

    elasticdl data make iris --file=data/iris.data
    elasticdl train --job_command="python -m model_zoo.iris.paddle_loop" --num_workers=1

`python -m model_zoo.iris.paddle_loop` alone does the same without a job. The model is saved after every shard, before
the shard is reported: a process that takes over finds in it everything that counts as done.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from elasticai_api.common.data_shard_service import build_data_shard_service

CATEGORY_CODE = {"Iris-setosa": 0, "Iris-versicolor": 1, "Iris-virginica": 2}
PLACES = ("/data/iris.data", "data/iris.data")
# Every fifth row is kept for the evaluation.
EVALUATED = 5


def read_rows(path: str) -> tuple[Any, Any]:
    """Reads rows in an order that mixes the species, which are sorted in the file: the same in every process."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row]
    random.Random(0).shuffle(rows)
    measures = np.array([row[:4] for row in rows], dtype=np.float32)
    return measures, np.array([CATEGORY_CODE[row[4]] for row in rows], dtype=np.int64)


def make_model() -> paddle.nn.Layer:
    paddle.seed(1)
    return paddle.nn.Sequential(
        paddle.nn.Linear(4, 16), paddle.nn.ReLU(), paddle.nn.Linear(16, len(CATEGORY_CODE))
    )


def save(model: paddle.nn.Layer, path: Path) -> None:
    """Whole or not at all: the process may be killed while it writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".new-{os.getpid()}.npz")
    np.savez(new, **{name: value.numpy() for name, value in model.state_dict().items()})
    new.replace(path)


def restore(model: paddle.nn.Layer, path: Path) -> None:
    if path.exists():
        with np.load(path) as saved:
            model.set_state_dict({name: saved[name] for name in saved.files})
        print(f"Goes on from {path}", flush=True)


def main(arguments: argparse.Namespace) -> None:
    measures, labels = read_rows(arguments.training_data)
    kept = np.arange(len(labels)) % EVALUATED == 0
    trained, answers = measures[~kept], labels[~kept]
    path = Path(arguments.model or Path(arguments.training_data).parent / "iris-paddle.npz")
    model = make_model()
    restore(model, path)
    optimizer = paddle.optimizer.SGD(learning_rate=0.05, parameters=model.parameters())
    service = build_data_shard_service(
        batch_size=arguments.batch_size,
        num_epochs=arguments.num_epochs,
        dataset_size=len(answers),
        num_minibatches_per_shard=5,
        dataset_name="iris_paddle",
    )
    while shard := service.fetch_shard():
        sizes = []
        for start in range(shard.start, shard.end, arguments.batch_size):
            batch = slice(start, min(start + arguments.batch_size, shard.end))
            predictions = model(paddle.to_tensor(trained[batch]))
            loss = paddle.nn.functional.cross_entropy(predictions, paddle.to_tensor(answers[batch]))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            sizes.append(batch.stop - batch.start)
        save(model, path)
        for size in sizes:
            service.report_batch_done(size)
    found = model(paddle.to_tensor(measures[kept])).numpy().argmax(axis=1)
    print(f"Final accuracy: {(found == labels[kept]).mean():.4f}", flush=True)


def parse(words: list[str]) -> argparse.Namespace:
    found = os.environ.get("IRIS_DATA") or next(
        (place for place in PLACES if os.path.exists(place)), PLACES[0]
    )
    parser = argparse.ArgumentParser(prog="python -m model_zoo.iris.paddle_loop")
    parser.add_argument(
        "--training_data", default=found, help="iris.data [default: $IRIS_DATA or %(default)s]"
    )
    parser.add_argument(
        "--model", default="", help="where to save it [default: iris-paddle.npz beside the data]"
    )
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--num_epochs", type=int, default=30)
    arguments = parser.parse_args(words)
    if not os.path.exists(arguments.training_data):
        parser.error(
            f"there is no {arguments.training_data}; `elasticdl data make iris --file=data/iris.data`"
        )
    return arguments


if __name__ == "__main__":
    main(parse(sys.argv[1:]))
