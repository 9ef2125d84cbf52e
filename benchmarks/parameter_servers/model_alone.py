"""The bound: the PyTorch model of all sides with its rows given and its gradients discarded.

Nothing that has to fetch rows and send gradients can train it faster on the same cores. It keeps its memory from batch
to batch as our workers do; otherwise it would not be a bound for ours.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.progress import Progress
from benchmarks.parameter_servers.torch_model import DeepFM
from elasticdl.worker.tensor_memory import keep_memory


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=clicks.LAYERS, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--optimizer", choices=("sgd", "adagrad"), default="sgd")
    arguments = parser.parse_args()
    keep_memory()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    data = clicks.open_clicks(arguments.data)
    model = DeepFM(clicks.LAYERS[arguments.size])
    optimizer: torch.optim.Optimizer
    if arguments.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=clicks.PLAIN_RATE)
    else:
        optimizer = torch.optim.Adagrad(
            model.parameters(), lr=clicks.RATE, initial_accumulator_value=clicks.START, eps=clicks.EPSILON
        )
    rows = torch.empty(data.sizes.batch, clicks.CATEGORIES, clicks.WIDTH)
    rows.uniform_(-clicks.SPREAD, clicks.SPREAD).requires_grad_()
    progress = Progress(f"worker-{arguments.number}")
    for numbers, _, labels in data.batches(arguments.number * data.sizes.batches // 2):
        logits = model(torch.from_numpy(numbers), rows)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels))
        optimizer.zero_grad(set_to_none=True)
        rows.grad = None
        loss.backward()
        optimizer.step()
        progress.batch(loss.item())


if __name__ == "__main__":
    main()
