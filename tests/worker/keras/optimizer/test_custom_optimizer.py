"""Custom optimizers with Keras's schedules and callbacks, and errors in them. `contract/` has what is common to all."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl
import elasticdl.keras
from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition, ProgramError
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Shard
from tests.worker.losses import losses_alone

STEPS = 10


class Adagrad(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"sum": 0.1}

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] += gradient**2
        return value - learning_rate * gradient / np.sqrt(slots["sum"] + 1e-7)


class Broken(elasticdl.Optimizer):
    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        return value - gradient[:0]


def own() -> Any:
    return Adagrad(0.1)


def scheduled() -> Any:
    return Adagrad(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5))


def kerass_scheduled() -> Any:
    return tf.keras.optimizers.Adagrad(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5))


def network(*, tables: bool) -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    if tables:
        rows = elasticdl.keras.Embedding(4, initializer="normal", name="users")(given)
    else:
        rows = tf.keras.layers.Dense(4)(tf.keras.layers.Rescaling(1 / 40)(given))
    return tf.keras.Model(given, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(rows)))


def batches() -> list[Batch]:
    chance = np.random.default_rng(0)
    return [
        Batch(
            shard=Shard(lease_id=1, epoch=0, start=0, end=800),
            position=16 * (number + 1),
            atomic=False,
            last=False,
            size=16,
            features=tf.constant(chance.integers(0, 40, (16, 3))),
            labels=tf.constant(chance.normal(size=(16, 1)).astype(np.float32)),
        )
        for number in range(STEPS)
    ]


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(optimizer: Any, *, tables: bool = True) -> KerasTrainer:
        tf.keras.utils.set_random_seed(1)
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=optimizer,
            eval_metrics_fn=dict,
        )
        return KerasTrainer(definition=definition, model=network(tables=tables))

    return make


def test_custom_optimizer_with_schedule_equals_that_of_keras(trainer: Callable[..., KerasTrainer]) -> None:
    both = [losses_alone(trainer(optimizer), batches()) for optimizer in (scheduled, kerass_scheduled)]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-5)


def test_callbacks_change_its_rate(trainer: Callable[..., KerasTrainer]) -> None:
    made = trainer(own)
    made.build(batches()[0])
    assert made.learning_rate(0) == pytest.approx(0.1)
    native = made._optimized.native
    native.learning_rate = 0.25
    assert made.learning_rate(0) == 0.25
    assert float(native.lr.numpy()) == 0.25


def test_errors_include_the_line_of_the_optimizer(trainer: Callable[..., KerasTrainer]) -> None:
    with pytest.raises((UserError, ProgramError)) as raised:
        losses_alone(trainer(lambda: Broken(0.1), tables=False), batches())
    assert "The optimizer Broken failed on" in str(raised.value)
    assert "value - gradient[:0]" in str(raised.value)
