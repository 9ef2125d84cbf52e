"""One training program in three variants: elastic all-reduce, plain DistributedDataParallel, and that under torchrun.

`python -m benchmarks.allreduce_program WAY STEPS STAMPS`: trains a network of 25 million parameters on data in memory,
in as many processes as are started. For every step it writes a line into a file in STAMPS: the time of its end, its
number, and the number of processes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BATCH = 64
WIDE = 4096


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(784, WIDE),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDE, WIDE),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDE, 1200),
        torch.nn.ReLU(),
        torch.nn.Linear(1200, 10),
    )


class Numbers(Dataset[Any]):  # type: ignore[misc]
    """A few samples, repeated as often as needed."""

    def __init__(self, steps: int) -> None:
        self._size = 2 * BATCH * steps
        self._images = torch.randn(1024, 784)
        self._labels = torch.randint(0, 10, (1024,))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Any:
        return self._images[index % 1024], self._labels[index % 1024]


def train_one_batch(network: Any, optimizer: Any, images: Any, labels: Any) -> Any:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    return loss


class Stamps:
    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"{os.environ.get('ELASTICDL_NODE', 'peer')}-{os.getpid()}").open(
            "w", buffering=1
        )

    def note(self, step: int, processes: int) -> None:
        self._file.write(f"{time.time()} {step} {processes}\n")


def elastic(steps: int, stamps: Stamps) -> None:
    from elasticai_api.pytorch.controller import create_elastic_controller

    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    samples = Numbers(steps)
    controller = create_elastic_controller(batch_size=BATCH, num_epochs=1, dataset_size=2 * BATCH * steps)
    controller.set_broadcast_model(network)
    controller.set_broadcast_optimizer(optimizer)
    train = controller.elastic_run(train_one_batch)
    with controller.scope():
        before = 0
        for images, labels in controller.loader(samples):
            train(network, optimizer, images, labels)
            if controller.step > before:
                before = controller.step
                stamps.note(before, len(controller.members))


def plain(steps: int, stamps: Stamps) -> None:
    torch.distributed.init_process_group("gloo")
    network = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    samples = Numbers(steps)
    loader = DataLoader(samples, batch_size=BATCH, sampler=DistributedSampler(samples, shuffle=False))
    for step, (images, labels) in enumerate(loader, start=1):
        train_one_batch(network, optimizer, images, labels)
        stamps.note(step, torch.distributed.get_world_size())


def main(way: str, steps: str, folder: str) -> None:
    torch.set_num_threads(1)
    {"elastic": elastic, "plain": plain}[way](int(steps), Stamps(Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
