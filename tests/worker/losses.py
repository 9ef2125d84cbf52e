"""The losses of a training, batch by batch."""

from __future__ import annotations

from typing import Any

from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.trainer import Batch, Trainer


def losses(model: Any, given: list[Batch]) -> list[float]:
    model.prepare(given[0])
    return [model.train(batch, position=batch.position, batches=1) for batch in given]


def losses_alone(trainer: Trainer, given: list[Batch]) -> list[float]:
    """In one worker, without servers."""
    return losses(LocalModel(trainer, restore_from="", first_step=0), given)
