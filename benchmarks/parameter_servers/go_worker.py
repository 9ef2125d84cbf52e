"""A worker of the Go server: the PyTorch model of all sides, rows and parameters from the server, gradients to it.

With `--path` there is no model: the distinct ids of a batch, their rows pulled, as many gradients pushed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.go_server import GoClient
from benchmarks.parameter_servers.progress import Progress
from elasticdl.ps.embedding.unique_ids import sum_by, unique


def train(
    client: GoClient, data: clicks.Clicks, layers: tuple[int, ...], *, threads: int, number: int
) -> None:
    import torch
    from torch import nn

    from benchmarks.parameter_servers.torch_model import DeepFM

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = DeepFM(layers)
    parameters = dict(model.named_parameters())
    assert sum(each.numel() for each in parameters.values()) == clicks.dense_parameters(layers)
    client.start({name: each.detach().numpy() for name, each in parameters.items()})
    progress = Progress(f"worker-{number}")
    for numbers, ids, labels in data.batches(number * data.sizes.batches // 2):
        with torch.no_grad():
            for name, array in client.dense().items():
                parameters[name].copy_(torch.tensor(array))
        different, inverse = unique(ids.reshape(-1))
        pulled = client.rows(different)
        rows = torch.from_numpy(pulled[inverse].reshape(*ids.shape, clicks.WIDTH)).requires_grad_()
        logits = model(torch.from_numpy(numbers), rows)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels))
        model.zero_grad(set_to_none=True)
        loss.backward()
        sums = sum_by(inverse, rows.grad.numpy().reshape(-1, clicks.WIDTH), len(different))
        client.push({name: each.grad.numpy() for name, each in parameters.items()}, different, sums)
        progress.batch(loss.item())


def move(client: GoClient, data: clicks.Clicks, *, number: int) -> None:
    client.start({"none": np.zeros(1, np.float32)})
    progress = Progress(f"worker-{number}")
    gradients = np.full((data.sizes.batch * clicks.CATEGORIES, clicks.WIDTH), 1e-6, np.float32)
    for _, ids, _ in data.batches(number * data.sizes.batches // 2):
        different, _ = unique(ids.reshape(-1))
        rows = client.rows(different)
        client.push({}, different, gradients[: len(different)])
        progress.batch(float(rows[0, 0]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--address", required=True)
    parser.add_argument("--size", choices=clicks.LAYERS, default="full")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--path", action="store_true")
    arguments = parser.parse_args()
    client = GoClient(arguments.address)
    data = clicks.open_clicks(arguments.data)
    if arguments.path:
        move(client, data, number=arguments.number)
    else:
        layers = clicks.LAYERS[arguments.size]
        train(client, data, layers, threads=arguments.threads, number=arguments.number)


if __name__ == "__main__":
    main()
