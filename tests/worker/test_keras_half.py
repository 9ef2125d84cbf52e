"""Keras models that compute in half precision train, by themselves and on parameter servers, with tables in them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.ps.client import ParameterClient
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras import KerasTrainer
from elasticdl.worker.models import OwnModel
from elasticdl.worker.served import ServedModel
from elasticdl.worker.trainer import Batch, Shard

IDS = np.random.default_rng(0).integers(0, 30, (32, 3))
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=32),
    position=32,
    atomic=False,
    last=True,
    size=32,
    features=tf.constant(IDS),
    labels=tf.constant((IDS.sum(1, keepdims=True) % 2).astype(np.float32)),
)


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16"])
def policy(request: Any) -> Iterator[str]:
    tf.keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    tf.keras.mixed_precision.set_global_policy("float32")


def network() -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    rows = tf.keras.layers.Flatten()(elasticdl.keras.Embedding(4, name="rows")(given))
    return tf.keras.Model(given, tf.keras.layers.Dense(1)(rows))


@pytest.mark.parametrize("where", ["servers", "one worker"])
def test_it_learns(
    make_definition: Callable[..., ModelDefinition],
    table_servers: tuple[list[Any], list[str]],
    policy: str,
    where: str,
) -> None:
    tf.keras.utils.set_random_seed(0)
    definition = make_definition(
        loss=lambda labels, predictions: tf.nn.sigmoid_cross_entropy_with_logits(
            labels, tf.cast(predictions, tf.float32)
        ),
        optimizer=lambda: tf.keras.optimizers.SGD(0.5, global_clipnorm=100.0),
        eval_metrics_fn=dict,
    )
    trainer = KerasTrainer(definition=definition, model=network())
    model: Any = OwnModel(trainer, restore_from="", first_step=0)
    if where == "servers":
        client = ParameterClient(
            table_servers[1], "token", "worker-0", generation=1, patience_seconds=60, tolerant=False
        )
        model = ServedModel(trainer, client, pull_every=1, restore_from="")
    model.prepare(BATCH)
    losses = [model.train(BATCH, position=32, batches=1) for _ in range(40)]
    model.settle()
    assert losses[-1] < 0.8 * losses[0]
    model.close()
