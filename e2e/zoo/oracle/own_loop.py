"""`python -m oracle.own_loop FILE`: `oracle.local_model` in a loop of its own, averaged by an elastic controller.

The first member writes the values to the file in the end. One that never received the model must not.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from elasticai_api.pytorch.controller import create_elastic_controller
from oracle.local_model import SIZE, Counting, OneEach, loss

BATCH_SIZE = 8


def main(file: Path) -> None:
    model = Counting()
    optimizer = OneEach(model.parameters())
    samples = TensorDataset(torch.arange(SIZE))
    loader = DataLoader(samples, batch_size=BATCH_SIZE, shuffle=True)
    epochs = int(os.environ["ELASTICDL_TEST_EPOCHS"])
    controller = create_elastic_controller(model=model, optimizer=optimizer, loader=loader, num_epochs=epochs)
    for epoch in controller.epochs():
        for (ids,) in epoch:
            optimizer.zero_grad()
            loss(torch.zeros(0), model(ids)).backward()
            optimizer.step()
    if controller.first:
        new = file.with_name(f".{file.name}.{os.getpid()}")
        torch.save(model.state_dict(), new)
        new.replace(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
