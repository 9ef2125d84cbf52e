"""Gradients for parameter servers: of every parameter, dense, clipped as the optimizer says, without an update."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Parameters, Shard

layers = tf.keras.layers
SHARD = Shard(lease_id=0, epoch=0, start=0, end=8)
RANDOM = np.random.default_rng(0)
BATCH = Batch(
    shard=SHARD,
    position=8,
    atomic=False,
    last=True,
    size=8,
    features=tf.constant(RANDOM.integers(0, 20, size=(8, 3))),
    labels=tf.constant(100 * RANDOM.normal(size=(8, 1)).astype(np.float32)),
)


def model() -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    rows = layers.Embedding(20, 4)(given)
    return tf.keras.Model(given, layers.Dense(1)(layers.Flatten()(rows)))


def dense() -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    numbers = layers.Rescaling(0.1)(given)
    return tf.keras.Model(given, layers.Dense(1)(layers.Dense(4, activation="tanh")(numbers)))


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(optimizer: Callable[[], Any], network: Callable[[], Any] = model) -> KerasTrainer:
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=optimizer,
            eval_metrics_fn=dict,
        )
        return KerasTrainer(definition=definition, model=network())

    return make


def test_all_parameters_and_nothing_changes(trainer: Callable[..., KerasTrainer]) -> None:
    trained = trainer(lambda: tf.keras.optimizers.SGD(0.1))
    trained.build(BATCH)
    before = trained.parameters()
    loss, gradients = trained.gradients(BATCH)
    assert loss > 0
    assert list(gradients) == list(before.trainable)
    assert {name: value.shape for name, value in gradients.items()} == {
        name: value.shape for name, value in before.trainable.items()
    }
    seen = np.unique(BATCH.features)
    assert np.flatnonzero(np.abs(gradients["0:embedding/embeddings"]).sum(axis=1)).tolist() == seen.tolist()
    after = trained.parameters()
    assert all(np.array_equal(before.trainable[name], after.trainable[name]) for name in gradients)


@pytest.mark.parametrize("setting", ["clipnorm", "global_clipnorm", "clipvalue"])
def test_gradients_are_clipped_by_optimizer_setting(
    trainer: Callable[..., KerasTrainer], setting: str
) -> None:
    plain = trainer(lambda: tf.keras.optimizers.SGD(0.1), dense)
    clipped = trainer(lambda: tf.keras.optimizers.SGD(0.1, **{setting: 0.5}), dense)
    plain.build(BATCH)
    clipped.build(BATCH)
    clipped.set_parameters(plain.parameters())
    raw = plain.gradients(BATCH)[1]
    got = clipped.gradients(BATCH)[1]
    overall = np.sqrt(sum(float((value**2).sum()) for value in raw.values()))
    for name, value in raw.items():
        expected = {
            "clipnorm": value * min(1.0, 0.5 / float(np.linalg.norm(value))),
            "global_clipnorm": value * min(1.0, 0.5 / overall),
            "clipvalue": np.clip(value, -0.5, 0.5),
        }[setting]
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-7)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.01),
    "sgd with momentum": lambda: tf.keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    "adagrad": lambda: tf.keras.optimizers.Adagrad(0.05),
    "adam": lambda: tf.keras.optimizers.Adam(0.01),
    "adam with amsgrad": lambda: tf.keras.optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: tf.keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "rmsprop": lambda: tf.keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "adadelta": lambda: tf.keras.optimizers.Adadelta(0.5),
    "adamax": lambda: tf.keras.optimizers.Adamax(0.01),
    # Not Nadam: inside a graph that of tf.keras 2.15 counts its steps wrongly.
    "ftrl": lambda: tf.keras.optimizers.Ftrl(
        0.05, l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
    "sgd, clipped": lambda: tf.keras.optimizers.SGD(0.1, global_clipnorm=1.0),
    "sgd on a schedule": lambda: tf.keras.optimizers.SGD(
        tf.keras.optimizers.schedules.ExponentialDecay(0.01, 1, 0.5)
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_server_with_our_settings_does_what_keras_does(
    trainer: Callable[..., KerasTrainer], name: str
) -> None:
    # Without rows that come more than once: for those Keras's optimizers differ from their own formulas.
    local, remote = trainer(OPTIMIZERS[name], dense), trainer(OPTIMIZERS[name], dense)
    local.build(BATCH)
    remote.build(BATCH)
    values = local.parameters().trainable
    remote.set_parameters(Parameters(trainable=values))
    server = make_optimizer(remote.optimizer_config())
    slots = {key: server.slots(key, value) for key, value in values.items()}
    for step in range(4):
        local.train(BATCH)
        _, gradients = remote.gradients(BATCH)
        rate = remote.learning_rate(step)
        for key, gradient in gradients.items():
            server.apply(key, values[key], gradient, slots[key], rate, step + 1)
        remote.set_parameters(Parameters(trainable=values))
    for key, expected in local.parameters().trainable.items():
        np.testing.assert_allclose(values[key], expected, rtol=2e-4, atol=2e-6, err_msg=key)
