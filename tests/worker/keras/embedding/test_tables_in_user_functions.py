"""A layer with a table inside of the user's own functions and control flow, in any version of Keras: it is trained."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.trainer import Batch, Shard

IDS = tf.constant([[1, 2], [3, 4]], tf.int64)
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=2),
    position=2,
    atomic=False,
    last=True,
    size=2,
    features=IDS,
    labels=tf.constant([[1.0], [2.0]]),
)


class Network(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.users = elasticdl.keras.Embedding(4, name="users")
        self.out = tf.keras.layers.Dense(1)
        self.summed = tf.function(self.sum)

    def sum(self, ids: Any, training: Any = None) -> Any:
        return tf.reduce_sum(self.users(ids, training=training), 1)

    def call(self, ids: Any, training: Any = None) -> Any:
        return self.out(self.sum(ids, training=training))


class InAFunction(Network):
    def call(self, ids: Any, training: Any = None) -> Any:
        return self.out(self.summed(ids, training=training))


class AsAFunction(Network):
    @tf.function  # type: ignore[untyped-decorator]
    def call(self, ids: Any, training: Any = None) -> Any:
        return self.out(self.sum(ids, training=training))


class InAMap(Network):
    def call(self, ids: Any, training: Any = None) -> Any:
        def of_one(sample: Any) -> Any:
            return tf.reduce_sum(self.users(sample, training=training), 0)

        return self.out(tf.map_fn(of_one, ids, fn_output_signature=tf.float32))


class InACondition(Network):
    def call(self, ids: Any, training: Any = None) -> Any:
        positive = tf.reduce_sum(ids) > 0
        return self.out(tf.cond(positive, lambda: self.sum(ids, training), lambda: self.sum(-ids, training)))


def losses(model: Any, make_definition: Callable[..., ModelDefinition]) -> list[float]:
    definition = make_definition(
        loss=lambda labels, predictions: (labels - predictions) ** 2,
        optimizer=lambda: tf.keras.optimizers.Adagrad(0.1),
        eval_metrics_fn=dict,
    )
    trained = LocalModel(KerasTrainer(definition=definition, model=model), restore_from="", first_step=0)
    trained.prepare(BATCH)
    return [trained.train(BATCH, position=2, batches=1) for _ in range(3)]


@pytest.mark.parametrize("network", [InAFunction, AsAFunction, InAMap, InACondition])
def test_a_model_with_functions_of_its_own(
    make_definition: Callable[..., ModelDefinition], network: Any
) -> None:
    found = []
    for each in (Network, network):
        tf.keras.utils.set_random_seed(1)
        found.append(losses(each(), make_definition))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert found[0][2] < found[0][0]


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("whole_step", [False, True])
def test_a_loop_of_the_users_own(built: bool, whole_step: bool) -> None:
    network = Network()
    if built:
        network(IDS)

    def gradients(ids: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(forward(ids))
        return tape.gradient(loss, network.trainable_variables)

    def forward(ids: Any) -> Any:
        return network(ids, training=True)

    if whole_step:
        gradients = tf.function(gradients)
    else:
        forward = tf.function(forward)
    assert all(gradient is not None for gradient in gradients(IDS))
    rows = network.users._own().lookups.take()
    assert sorted(rows["users"].ids) == [1, 2, 3, 4]
    assert np.abs(rows["users"].values).min() > 0
