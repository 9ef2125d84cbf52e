"""The peer `PyTorch`: the model in one process, with an ordinary sparse embedding and PyTorch's own Adagrad."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.progress import Progress
from benchmarks.parameter_servers.torch_model import DeepFM


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=clicks.LAYERS, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    layers = clicks.LAYERS[arguments.size]
    data = clicks.open_clicks(arguments.data)
    model = DeepFM(layers)
    assert sum(each.numel() for each in model.parameters()) == clicks.dense_parameters(layers)
    table = nn.Embedding(data.sizes.ids, clicks.WIDTH, sparse=True)
    nn.init.uniform_(table.weight, -clicks.SPREAD, clicks.SPREAD)
    optimizer = torch.optim.Adagrad(
        [*model.parameters(), table.weight],
        lr=clicks.RATE,
        initial_accumulator_value=clicks.START,
        eps=clicks.EPSILON,
    )
    progress = Progress("worker-0")
    for numbers, ids, labels in data.batches():
        logits = model(torch.from_numpy(numbers), table(torch.from_numpy(ids)))
        loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        progress.batch(loss.item())


if __name__ == "__main__":
    main()
