"""Parameters have the same names in every process, whatever it built before; values go out and come in by them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Parameters, Shard

layers = tf.keras.layers
SHARD = Shard(lease_id=0, epoch=0, start=0, end=4)


class Subclass(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.normalize = layers.BatchNormalization()
        self.blocks = [layers.Dense(3), layers.Dense(3)]
        self.noise = layers.Dropout(0.1)
        self.out = layers.Dense(1, name="out_7")

    def call(self, inputs: Any, training: bool = False) -> Any:
        x = self.normalize(inputs, training=training)
        for block in self.blocks:
            x = block(x)
        return self.out(self.noise(x, training=training))


def functional(width: int = 3) -> Any:
    given = tf.keras.Input((3,))
    x = layers.Dropout(0.2)(layers.Dense(width)(layers.BatchNormalization()(given)))
    return tf.keras.Model(given, layers.Dense(1)(x))


def batch(size: int = 4) -> Batch:
    return Batch(
        shard=SHARD,
        position=4,
        atomic=False,
        last=True,
        size=size,
        features=tf.ones([size, 3]),
        labels=tf.ones([size, 1]),
    )


@pytest.fixture
def built(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(model: Any) -> KerasTrainer:
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=lambda: tf.keras.optimizers.Adam(0.01),
            eval_metrics_fn=dict,
        )
        trainer = KerasTrainer(definition=definition, model=model)
        trainer.build(batch())
        return trainer

    return make


@pytest.mark.parametrize("make", [Subclass, functional])
def test_names_do_not_depend_on_what_was_built_before(
    built: Callable[..., KerasTrainer], make: Callable[[], Any]
) -> None:
    first = built(make()).parameters()
    for _ in range(3):
        layers.Dense(2)(layers.BatchNormalization()(tf.ones([1, 2])))
    second = built(make()).parameters()
    assert list(first.trainable) == list(second.trainable)
    assert list(first.state) == list(second.state)


def test_names_say_what_they_are_of(built: Callable[..., KerasTrainer]) -> None:
    values = built(functional()).parameters()
    assert list(values.trainable) == [
        "0:batch_normalization/gamma",
        "1:batch_normalization/beta",
        "2:dense/kernel",
        "3:dense/bias",
        "4:dense/kernel",
        "5:dense/bias",
    ]
    # The seed of the dropout is not among them.
    assert list(values.state) == [
        "6:batch_normalization/moving_mean",
        "7:batch_normalization/moving_variance",
    ]


def test_names_do_not_depend_on_how_it_is_used(built: Callable[..., KerasTrainer]) -> None:
    trained, used = built(Subclass()), built(Subclass())
    trained.train(batch())
    used.predict(batch())
    assert list(trained.parameters().trainable) == list(used.parameters().trainable)


def test_values_go_from_one_model_to_another(built: Callable[..., KerasTrainer]) -> None:
    source, target = built(Subclass()), built(Subclass())
    for _ in range(3):
        source.train(batch())
    target.set_parameters(source.parameters())
    np.testing.assert_array_equal(source.predict(batch())["output"], target.predict(batch())["output"])


def test_values_are_copies(built: Callable[..., KerasTrainer]) -> None:
    trainer = built(functional())
    before = trainer.parameters()
    kept = {name: value.copy() for name, value in before.trainable.items()}
    trainer.train(batch())
    assert all(np.array_equal(before.trainable[name], kept[name]) for name in kept)
    before.trainable["2:dense/kernel"][:] = 0
    assert np.any(trainer.parameters().trainable["2:dense/kernel"])


def test_values_of_another_model_are_refused(built: Callable[..., KerasTrainer]) -> None:
    trainer = built(functional())
    other = built(functional(width=5)).parameters()
    with pytest.raises(UserError, match=r"2:dense/kernel has shape \(3, 5\), this model's has \(3, 3\)"):
        trainer.set_parameters(other)
    with pytest.raises(UserError, match="0:batch_normalization/gamma is missing"):
        trainer.set_parameters(Parameters())


def test_frozen_layers_are_state(built: Callable[..., KerasTrainer]) -> None:
    model = functional()
    model.layers[2].trainable = False
    values = built(model).parameters()
    assert any(name.endswith("dense/kernel") for name in values.state)
    assert len(values.trainable) == 4
