"""The bound in Paddle: the model of both sides with its rows given and its gradients discarded.

As `model_alone.py` for PyTorch. It computes with the MKL kernels that our workers select, and keeps its memory as they
do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import paddle
from paddle import nn

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.paddle_model import DeepFM
from benchmarks.parameter_servers.progress import Progress
from elasticdl.worker.environment import select_mkl_kernels
from elasticdl.worker.tensor_memory import keep_memory


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=clicks.LAYERS, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--number", type=int, default=0)
    arguments = parser.parse_args()
    keep_memory()
    # Before Paddle computes.
    select_mkl_kernels()
    paddle.base.core.set_num_threads(arguments.threads)
    paddle.seed(0)
    data = clicks.open_clicks(arguments.data)
    model = DeepFM(clicks.LAYERS[arguments.size])
    optimizer = paddle.optimizer.SGD(clicks.PLAIN_RATE, parameters=model.parameters())
    shape = (data.sizes.batch, clicks.CATEGORIES, clicks.WIDTH)
    drawn = np.random.default_rng(0).uniform(-clicks.SPREAD, clicks.SPREAD, shape).astype(np.float32)
    rows = paddle.to_tensor(drawn, stop_gradient=False)
    progress = Progress(f"worker-{arguments.number}")
    for numbers, _, labels in data.batches(arguments.number * data.sizes.batches // 2):
        logits = model(paddle.to_tensor(numbers), rows)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, paddle.to_tensor(labels))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        rows.clear_gradient(False)
        progress.batch(float(loss))


if __name__ == "__main__":
    main()
