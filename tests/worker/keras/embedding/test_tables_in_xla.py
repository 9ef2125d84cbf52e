"""A part of a Keras model that XLA compiles cannot have tables in it; what can be done about it is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Shard

IDS = np.arange(12).reshape(4, 3)
LABELS = np.ones((4, 1), np.float32)
SAID = "Embedding users is in a part of the model that XLA compiles"
ADVICE = "Leave jit_compile out of model.compile and of tf.function"


class Compiled(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.users = elasticdl.keras.Embedding(4, combiner="sum", name="users")
        self.dense = tf.keras.layers.Dense(1)

    def call(self, ids: Any) -> Any:
        return self._all(ids)

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def _all(self, ids: Any) -> Any:
        return self.dense(self.users(ids))


class CompiledBehind(Compiled):
    def call(self, ids: Any) -> Any:
        return self._rest(self.users(ids))

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def _rest(self, rows: Any) -> Any:
        return self.dense(rows)


def trainer_of(model: Any, make_definition: Callable[..., ModelDefinition]) -> KerasTrainer:
    definition = make_definition(
        loss=lambda labels, predictions: tf.square(labels - predictions),
        optimizer=lambda: tf.keras.optimizers.SGD(0.1),
    )
    return KerasTrainer(definition=definition, model=model)


BATCH = Batch(
    shard=Shard(lease_id=0, epoch=0, start=0, end=4),
    position=4,
    atomic=False,
    last=True,
    size=4,
    features=tf.constant(IDS),
    labels=tf.constant(LABELS),
)


def test_in_a_job(make_definition: Callable[..., ModelDefinition]) -> None:
    trainer = trainer_of(Compiled(), make_definition)
    with pytest.raises(UserError) as raised:
        trainer.train(BATCH)
    assert SAID in str(raised.value)
    assert ADVICE in str(raised.value)


def test_in_a_job_what_is_behind_the_embeddings_can_be_compiled(
    make_definition: Callable[..., ModelDefinition],
) -> None:
    trainer = trainer_of(CompiledBehind(), make_definition)
    first = trainer.train(BATCH)
    for _ in range(3):
        last = trainer.train(BATCH)
    assert last < first


@pytest.mark.keras2  # Keras 3 does without XLA by itself, and says so.
def test_outside_of_a_job() -> None:
    ids = tf.keras.Input((3,), dtype="int64")
    rows = elasticdl.keras.Embedding(4, combiner="sum", name="users")(ids)
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(rows))
    model.compile(optimizer="adagrad", loss="mse", jit_compile=True)
    elasticdl.keras.attach(model)
    # Of whatever kind TensorFlow makes it.
    with pytest.raises(Exception, match=SAID) as raised:
        model.fit(IDS, LABELS, verbose=0)
    assert ADVICE in str(raised.value)
    model.compile(optimizer="adagrad", loss="mse")
    model.fit(IDS, LABELS, verbose=0)
