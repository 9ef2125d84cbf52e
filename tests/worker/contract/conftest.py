"""Each framework that is installed, behind one interface, for the tests that all of them must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elasticdl.data.example import encode_example
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.trainer import Batch, Shard, Trainer
from elasticdl.worker.trainer_factory import make_trainer
from tests.worker.contract.framework import IDS, INSTALLED, Framework, load

MakeTrainer = Callable[..., Trainer]
BATCH_SIZE = 16


@pytest.fixture(params=INSTALLED)
def framework(request: pytest.FixtureRequest) -> Framework:
    return load(request.param)


@pytest.fixture
def trainer(framework: Framework, make_definition: Callable[..., ModelDefinition]) -> MakeTrainer:
    """Makes a trainer of the framework: by the name of a model (or by a function that takes the features of a `table`
    model) and of an optimizer, and other parts in their place.
    """

    def make(
        model: str | Callable[[], Any] = "dense",
        optimizer: str = "sgd",
        move_embeddings: int = 0,
        **parts: Any,
    ) -> Trainer:
        parts = {
            "feed": framework.feed if model in ("dense", "normalized") else framework.table_feed,
            "loss": framework.loss,
            "eval_metrics_fn": framework.eval_metrics_fn,
            "optimizer": framework.optimizer(optimizer),
            **parts,
        }
        network = getattr(framework, model) if isinstance(model, str) else model
        return make_trainer(make_definition(model=network, **parts), move_embeddings=move_embeddings)

    return make


def make_records(count: int = 96) -> list[bytes]:
    """Labels that depend on the numbers and on the first id."""
    random = np.random.default_rng(3)
    found = []
    for number in range(count):
        numbers = random.normal(size=4).astype(np.float32)
        ids = IDS[1:][random.integers(0, 19, 3)]
        ids[0] = IDS[1 + number % 19]
        label = np.float32(numbers[0] - numbers[1] + (number % 19 - 9) / 9)
        found.append(encode_example({"numbers": numbers, "ids": ids, "label": np.array([label])}))
    return found


@pytest.fixture
def records() -> list[bytes]:
    return make_records()


@pytest.fixture
def batches(memory_reader: Any, records: list[bytes]) -> Callable[..., list[Batch]]:
    """The batches that a trainer makes of all records, as one shard or in several."""

    def make(
        trainer: Trainer, *, mode: Mode = Mode.TRAINING, shards: int = 1, bad: int = 0, **reader: Any
    ) -> list[Batch]:
        edges = np.linspace(0, len(records), shards + 1).astype(int).tolist()
        given = [
            Shard(lease_id=number, epoch=0, start=edges[number], end=edges[number + 1])
            for number in range(shards)
        ]
        return list(
            trainer.batches(
                memory_reader(records, **reader),
                given,
                mode=mode,
                batch_size=BATCH_SIZE,
                max_bad_records=bad,
            )
        )

    return make
