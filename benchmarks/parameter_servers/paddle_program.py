"""The peer `Paddle`: the model as a static program for Paddle 2.6's parameter server, one process per role.

The PADDLE_* variables have the role of a process, as `fleet` reads them. For dense parameters, Paddle's servers support
only SGD and Adam, and reject other optimizers. So it is Adam here, for rows too, and also on our side.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.distributed import fleet

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.progress import Progress


def network(layers: tuple[int, ...], ids_limit: int) -> tuple[list[Any], Any]:
    numbers = paddle.static.data("numbers", [None, clicks.NUMBERS], "float32")
    ids = paddle.static.data("ids", [None, 1], "int64")
    labels = paddle.static.data("labels", [None, 1], "float32")
    flat_rows = paddle.static.nn.sparse_embedding(
        input=ids,
        size=[ids_limit, clicks.WIDTH],
        param_attr=paddle.ParamAttr(
            name="table", initializer=paddle.nn.initializer.Uniform(-clicks.SPREAD, clicks.SPREAD)
        ),
    )
    # Its lookup accepts only a column of ids.
    rows = paddle.reshape(flat_rows, [-1, clicks.CATEGORIES, clicks.WIDTH])
    flat = paddle.concat([numbers, paddle.reshape(rows, [-1, clicks.CATEGORIES * clicks.WIDTH])], 1)
    deep = flat
    for units in layers:
        deep = paddle.static.nn.fc(deep, units, activation="relu")
    deep = paddle.static.nn.fc(deep, 1)
    together = paddle.sum(rows, 1)
    pairs = 0.5 * paddle.sum(together * together - paddle.sum(rows * rows, 1), 1, keepdim=True)
    logits = paddle.static.nn.fc(flat, 1) + deep + pairs
    loss = paddle.mean(paddle.nn.functional.binary_cross_entropy_with_logits(logits, labels))
    return [numbers, ids, labels], loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=clicks.LAYERS, required=True)
    arguments = parser.parse_args()
    data = clicks.open_clicks(arguments.data)
    layers = clicks.LAYERS[arguments.size]
    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    _, loss = network(layers, data.sizes.ids)
    parameters = paddle.static.default_main_program().all_parameters()
    dense = sum(int(np.prod(each.shape)) for each in parameters if each.name != "table")
    assert dense == clicks.dense_parameters(layers), dense
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(clicks.RATE), strategy)
    optimizer.minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    number = int(os.environ["PADDLE_TRAINER_ID"])
    progress = Progress(f"worker-{number}")
    for numbers, ids, labels in data.batches(number * data.sizes.batches // 2):
        feed = {"numbers": numbers, "ids": ids.reshape(-1, 1), "labels": labels[:, None]}
        (found,) = executor.run(paddle.static.default_main_program(), feed=feed, fetch_list=[loss])
        progress.batch(float(found))


if __name__ == "__main__":
    main()
