"""The peer in Paddle: a training loop written by hand for the same model, data and parsing.

`python -m benchmarks.plain_paddle DATA BATCH_SIZE READERS`: READERS is the `num_workers` of the DataLoader.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.zoo.mnist import paddle_cnn as definition
from elasticdl.data.dataset import open_reader
from elasticdl.jobs.mode import Mode

# isort: split
# After the definition, which records the time of Paddle's import.
from paddle import io


class Samples(io.IterableDataset):  # type: ignore[misc]
    def __init__(self, origin: str) -> None:
        super().__init__()
        self._origin = origin

    def __iter__(self) -> Iterator[Any]:
        reader = open_reader(self._origin)
        return definition.feed(reader.read(0, len(reader)), Mode.TRAINING, reader.metadata)


def main(origin: str, batch_size: str, readers: str) -> None:
    (stamps,) = definition.callbacks()
    model = definition.custom_model()
    optimizer = definition.optimizer(model.parameters())
    loader = io.DataLoader(Samples(origin), batch_size=int(batch_size), num_workers=int(readers))
    model.train()
    for number, (images, labels) in enumerate(loader):
        stamps.on_train_batch_begin(number)
        loss = definition.loss(labels, model(images))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        stamps.on_train_batch_end(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
