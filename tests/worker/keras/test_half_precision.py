"""Keras models that compute in half precision train, by themselves and on parameter servers, with tables in them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
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


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16", "float64"])
def policy(request: Any) -> Iterator[str]:
    tf.keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    tf.keras.mixed_precision.set_global_policy("float32")


def network() -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    rows = tf.keras.layers.Flatten()(elasticdl.keras.Embedding(4, name="rows")(given))
    return tf.keras.Model(given, tf.keras.layers.Dense(1)(rows))


class Mixed(tf.keras.Model):
    """What tables give goes together with what other layers give, without a layer that would make one of both."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = elasticdl.keras.Embedding(4, name="rows")
        self.bag = elasticdl.keras.Embedding(4, name="bag", combiner="mean")
        self.dense = tf.keras.layers.Dense(4)
        self.out = tf.keras.layers.Dense(1)

    def call(self, ids: Any) -> Any:
        rows = tf.reshape(self.rows(ids), [-1, 12])
        ragged = self.bag(tf.RaggedTensor.from_tensor(ids))
        return self.out(tf.concat([rows, self.bag(ids) + ragged, self.dense(ids / 30)], 1))


def test_embedding_output_has_dtype_of_policy(policy: str) -> None:
    layer = elasticdl.keras.Embedding(4)
    wanted = tf.keras.layers.Embedding(30, 4)(IDS).dtype
    assert layer(IDS).dtype == wanted
    assert layer(tf.RaggedTensor.from_tensor(IDS)).dtype == wanted
    assert elasticdl.keras.Embedding(4, dtype="float32")(IDS).dtype == tf.float32


@pytest.mark.parametrize("make_model", [network, Mixed])
@pytest.mark.parametrize("where", ["servers", "one worker"])
def test_half_precision_model_learns(
    make_definition: Callable[..., ModelDefinition],
    table_servers: tuple[list[Any], list[str]],
    policy: str,
    make_model: Callable[[], Any],
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
    trainer = KerasTrainer(definition=definition, model=make_model())
    model: Any = LocalModel(trainer, restore_from="", first_step=0)
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
