"""Handwritten digits in a plain PyTorch training loop, with a DataLoader whose samples come from shards of the job.

    elasticdl train --job_command="python -m model_zoo.digits.torch_loop" --num_workers=1

`python -m model_zoo.digits.torch_loop` alone does the same without a job. The digits come with scikit-learn. The model
is saved before its batches are reported: a process that takes over finds in it everything that counts as done.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.pytorch.dataset import ElasticDataLoader

TRAINED = 1437
# Batches between two times that the model is saved and its batches are reported.
EVERY = 10


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def save(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Whole or not at all: the process may be killed while it writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".new-{os.getpid()}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, new)
    new.replace(path)


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        print(f"Goes on from {path}", flush=True)


def main(arguments: argparse.Namespace) -> None:
    pixels, labels = load_digits(return_X_y=True)
    images, digits = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    path = Path(arguments.model)
    restore(model, optimizer, path)
    service = build_data_shard_service(
        batch_size=arguments.batch_size,
        num_epochs=arguments.num_epochs,
        dataset_size=TRAINED,
        shuffle_shards=True,
        num_minibatches_per_shard=4,
        dataset_name="digits",
    )
    samples = TensorDataset(images[:TRAINED], digits[:TRAINED])
    loader = ElasticDataLoader(samples, service, report=False, num_workers=arguments.loaders)
    sizes: list[int] = []

    def keep() -> None:
        save(model, optimizer, path)
        for size in sizes:
            service.report_batch_done(size)
        sizes.clear()

    for batch, answers in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), answers).backward()
        optimizer.step()
        sizes.append(len(answers))
        if len(sizes) == EVERY:
            keep()
    keep()
    with torch.no_grad():
        found = model(images[TRAINED:]).argmax(dim=1)
    print(f"Final accuracy: {(found == digits[TRAINED:]).float().mean():.4f}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m model_zoo.digits.torch_loop")
    parser.add_argument(
        "--model", default="out/digits-loop.pt", help="where to save it [default: %(default)s]"
    )
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_epochs", type=int, default=10)
    parser.add_argument("--loaders", type=int, default=2, help="processes that read samples")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse())
