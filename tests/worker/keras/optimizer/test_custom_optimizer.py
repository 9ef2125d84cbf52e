"""A definition's optimizer may be the user's own, in NumPy: one worker alone, servers and Keras's do the same."""

from collections.abc import Callable, Mapping
from pathlib import Path
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
from tests.worker.own_optimizers import (
    assert_goes_on_from_a_checkpoint,
    assert_servers_do_the_same,
    losses_alone,
)

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


def kerass() -> Any:
    return tf.keras.optimizers.Adagrad(0.1)


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


@pytest.mark.parametrize("optimizers", [(own, kerass), (scheduled, kerass_scheduled)])
@pytest.mark.parametrize("tables", [False, True])
def test_alone_it_does_what_kerass_does(
    trainer: Callable[..., KerasTrainer], optimizers: tuple[Any, Any], tables: bool
) -> None:
    both = [losses_alone(trainer(optimizer, tables=tables), batches()) for optimizer in optimizers]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-5)


def test_servers_do_the_same(
    trainer: Callable[..., KerasTrainer], table_servers: tuple[list[Any], list[str]]
) -> None:
    assert_servers_do_the_same(lambda: trainer(own), batches(), table_servers[1])


def test_custom_optimizer_continues_from_checkpoint(
    trainer: Callable[..., KerasTrainer], tmp_path: Path
) -> None:
    assert_goes_on_from_a_checkpoint(lambda: trainer(own), batches(), tmp_path, rtol=1e-6)


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
