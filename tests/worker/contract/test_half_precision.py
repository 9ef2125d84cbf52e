"""Keras and PyTorch models that compute in half precision train, in one worker and on servers, with tables in them."""

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
from tests.worker.contract.framework import WITH_BAGS, load_with_bags
from tests.worker.epochs import alone, served

VARIANTS = {
    "keras": [
        f"{policy} {network}"
        for policy in ("mixed_float16", "mixed_bfloat16", "float64")
        for network in ("functional", "mixed")
    ],
    "torch": [f"{kind} {network}" for kind in ("float16", "bfloat16") for network in ("halved", "cast")],
}


def batch_of(trainer: Trainer, memory_reader: Any) -> Batch:
    """All of 32 records, whose label is the parity of an id."""
    ids = np.random.default_rng(0).integers(0, 30, (32, 3))
    records = [
        encode_example(
            {"numbers": np.zeros(4, np.float32), "ids": row, "label": (row[:1] % 2).astype(np.float32)}
        )
        for row in ids
    ]
    (batch,) = trainer.batches(
        memory_reader(records),
        [Shard(lease_id=1, epoch=0, start=0, end=32)],
        mode=Mode.TRAINING,
        batch_size=32,
        max_bad_records=0,
    )
    return batch


@pytest.mark.parametrize(
    ("name", "variant"), [(name, variant) for name in WITH_BAGS for variant in VARIANTS[name]]
)
@pytest.mark.parametrize("where", ["servers", "one worker"])
def test_half_precision_model_learns(
    make_definition: Callable[..., ModelDefinition],
    memory_reader: Any,
    table_servers: tuple[list[Any], list[str]],
    name: str,
    variant: str,
    where: str,
) -> None:
    framework = load_with_bags(name)
    with framework.half_precision(variant) as network:
        trainer = make_trainer(
            make_definition(
                model=lambda: network,
                feed=framework.ids_feed,
                loss=framework.cross_entropy,
                optimizer=framework.optimizer("steep"),
                eval_metrics_fn=dict,
            )
        )
        batch = batch_of(trainer, memory_reader)
        model = served(trainer, table_servers[1]) if where == "servers" else alone(trainer)
        model.prepare(batch)
        losses = [model.train(batch, position=32, batches=1) for _ in range(40)]
        model.settle()
        model.close()
    assert losses[-1] < 0.8 * losses[0]
    if name == "torch":
        # The parameter by which an optimizer knows the layer has no numbers.
        assert trainer.tables.layers[0][1].handle.numel() == 0
