"""Layers of a Keras model that the first look at it does not reach: those that training alone uses, those that some
batches do without, and unused ones.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import LocalModel, Model
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.trainer import Batch, Shard

layers = tf.keras.layers
IDS = np.random.default_rng(0).integers(1, 20, (16, 3))


def batch_of(ids: Any) -> Batch:
    return Batch(
        shard=Shard(lease_id=1, epoch=0, start=0, end=16),
        position=16,
        atomic=False,
        last=True,
        size=16,
        features=tf.constant(ids),
        labels=tf.ones((16, 1)),
    )


class Network(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first = elasticdl.keras.Embedding(4, name="first")
        self.second = elasticdl.keras.Embedding(4, name="second", initializer="normal")
        self.norm = layers.BatchNormalization()
        self.more = layers.Dense(4, use_bias=False)
        self.out = layers.Dense(1)

    def sum_of(self, embedding: Any, ids: Any) -> Any:
        return self.norm(tf.reduce_sum(embedding(ids), axis=1))


class InTraining(Network):
    def call(self, ids: Any, training: bool = False) -> Any:
        sums = self.sum_of(self.first, ids)
        return self.out(self.more(sums + self.sum_of(self.second, ids)) if training else sums)


class Sometimes(Network):
    def call(self, ids: Any) -> Any:
        sums = self.more(self.sum_of(self.first, ids))
        return self.out(
            tf.cond(
                tf.reduce_any(ids == 0),
                lambda: sums + tf.reduce_sum(self.second(ids), axis=1),
                lambda: sums,
            )
        )


class Never(Network):
    def call(self, ids: Any) -> Any:
        return self.out(self.sum_of(self.first, ids))


@pytest.mark.parametrize(
    ("network", "kernels", "tables"),
    [
        (InTraining, 2, [{"first", "second"}, {"first", "second"}]),
        (Sometimes, 2, [{"first"}, {"first", "second"}]),
        (Never, 1, [{"first"}, {"first"}]),
    ],
)
@pytest.mark.parametrize("where", ["servers", "one worker"])
def test_layer_used_by_some_batches_is_trained_by_them(
    make_definition: Callable[..., ModelDefinition],
    table_servers: tuple[list[Any], list[str]],
    tmp_path: Path,
    network: Callable[[], Any],
    kernels: int,
    tables: list[set[str]],
    where: str,
) -> None:
    definition = make_definition(
        loss=lambda labels, predictions: (labels - predictions) ** 2,
        optimizer=lambda: tf.keras.optimizers.SGD(0.1),
    )
    trainer = KerasTrainer(definition=definition, model=network())
    model: Model = LocalModel(trainer, restore_from="", first_step=0)
    if where == "servers":
        client = ParameterClient(table_servers[1], "token", "worker-0", generation=1, patience_seconds=60)
        model = ServedModel(trainer, client, pull_every=1, restore_from="")
    without, with_zero = batch_of(IDS), batch_of(IDS * [1, 1, 0])
    model.prepare(without)
    assert sum(name.endswith("kernel") for name in trainer.parameters().trainable) == kernels
    # Nothing has been computed with moving averages.
    (average,) = [one for name, one in trainer.parameters().state.items() if name.endswith("moving_mean")]
    assert not average.any()
    seen = []
    for batch in (without, with_zero):
        model.train(batch, position=16, batches=1)
        trainer.gradients(batch)
        seen.append(set(trainer.row_gradients()))
    assert seen == tables
    with model.whole():
        trainer.export(tmp_path / "model", without)
    model.close()


class Translator(tf.keras.Model):
    """Reads the preceding tokens while it is trained, which are missing in prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.of_an_experiment = layers.Dense(4)
        self.out = layers.Dense(1)

    def call(self, features: Any, training: bool = False) -> Any:
        ids = tf.cast(features["ids"], tf.float32)
        before = features["before"] if training else tf.zeros((tf.shape(ids)[0], 1))
        return self.out(tf.concat([ids, before], axis=1))


def test_prediction_works_without_training_only_layers(
    make_definition: Callable[..., ModelDefinition],
) -> None:
    trainer = KerasTrainer(definition=make_definition(), model=Translator())
    batch = dataclasses.replace(batch_of(IDS), features={"ids": tf.constant(IDS)}, labels=None)
    trainer.build(batch)
    (predicted,) = trainer.predict(batch).values()
    assert predicted.shape == (16, 1)


class InPairs(Network):
    """Its samples are compared with each other while it is trained, two by two."""

    def call(self, ids: Any, training: bool = False) -> Any:
        sums = self.sum_of(self.first, ids)
        if training:
            sums += tf.repeat(self.more(tf.reshape(sums, [-1, 8])), 2, axis=0)
        return self.out(sums)


def test_layers_are_built_by_whole_batches(make_definition: Callable[..., ModelDefinition]) -> None:
    definition = make_definition(
        loss=lambda labels, predictions: (labels - predictions) ** 2,
        optimizer=lambda: tf.keras.optimizers.SGD(0.1),
    )
    trainer = KerasTrainer(definition=definition, model=InPairs())
    model = LocalModel(trainer, restore_from="", first_step=0)
    model.prepare(batch_of(IDS))
    before = trainer.parameters().trainable
    kernels = [name for name in before if name.endswith("kernel")]
    assert len(kernels) == 2
    model.train(batch_of(IDS), position=16, batches=1)
    after = trainer.parameters().trainable
    assert all((before[name] != after[name]).any() for name in kernels)
