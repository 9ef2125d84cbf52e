"""The peer in PyTorch: a training loop written by hand for the same model, data and parsing.

`python -m benchmarks.plain_torch DATA BATCH_SIZE READERS`: READERS is the `num_workers` of the DataLoader.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.zoo.mnist import torch_cnn as definition
from elasticdl.data.dataset import open_reader
from elasticdl.jobs.mode import Mode

# isort: split
# After the definition, which records the time of PyTorch's import.
from torch.utils import data


class Samples(data.IterableDataset[Any]):  # type: ignore[misc]
    def __init__(self, origin: str) -> None:
        self._origin = origin

    def __iter__(self) -> Iterator[Any]:
        reader = open_reader(self._origin)
        return definition.feed(reader.read(0, len(reader)), Mode.TRAINING, reader.metadata)


def main(origin: str, batch_size: str, readers: str) -> None:
    (stamps,) = definition.callbacks()
    model = definition.custom_model()
    optimizer = definition.optimizer(model.parameters())
    loader = data.DataLoader(Samples(origin), batch_size=int(batch_size), num_workers=int(readers))
    model.train()
    for number, (images, labels) in enumerate(loader):
        stamps.on_train_batch_begin(number)
        optimizer.zero_grad()
        loss = definition.loss(labels, model(images))
        loss.backward()
        optimizer.step()
        stamps.on_train_batch_end(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
