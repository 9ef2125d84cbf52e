"""A Keras model whose embeddings have tables, and its trainer: gradients of rows, steps, checkpoints."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.ps.embedding.lookups import Lookups
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.trainer import Batch, Shard

layers = tf.keras.layers
RANDOM = np.random.default_rng(0)
SPARSE = RANDOM.integers(-(2**63), 2**63 - 1, 20)
PLACES = RANDOM.integers(0, 20, size=(16, 3))
LABELS = RANDOM.normal(size=(16, 1)).astype(np.float32)


def batch_of(ids: Any) -> Batch:
    shard = Shard(lease_id=1, epoch=0, start=0, end=16)
    return Batch(
        shard=shard,
        position=16,
        atomic=False,
        last=True,
        size=16,
        features=tf.constant(ids),
        labels=tf.constant(LABELS),
    )


BATCH = batch_of(SPARSE[PLACES])


def network(embedding: Any = None) -> Any:
    """With a table that is looked up twice, or with a matrix in its place."""
    if embedding is None:
        given = tf.keras.Input((3,), dtype="int64")
        embedding = elasticdl.keras.Embedding(4, initializer="normal", name="users")
    else:
        given = tf.keras.Input((3, 20))
    both = layers.Concatenate()([embedding(given), embedding(given[:, ::-1])])
    return tf.keras.Model(given, layers.Dense(1)(layers.Flatten()(both)))


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(model: Any = None, **options: Any) -> KerasTrainer:
        tf.keras.utils.set_random_seed(1)
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=lambda: tf.keras.optimizers.Adagrad(0.1, **options),
            eval_metrics_fn=dict,
        )
        return KerasTrainer(definition=definition, model=model or network())

    return make


@pytest.fixture
def pair(
    trainer: Callable[..., KerasTrainer],
) -> Callable[..., tuple[KerasTrainer, Batch, KerasTrainer, Batch]]:
    """A model with a table, and one with the same numbers in a matrix."""

    def make(**options: Any) -> tuple[KerasTrainer, Batch, KerasTrainer, Batch]:
        matrix = layers.Dense(4, use_bias=False)
        plain = trainer(network(matrix), **options)
        made = trainer(**options)
        plain.build(batch_of(np.eye(20, dtype=np.float32)[PLACES]))
        made.build(BATCH)
        start = LocalTables(made.tables.specs).pull_rows({"users": SPARSE})["users"]
        matrix.set_weights([start])
        made.model.layers[-1].set_weights(plain.model.layers[-1].get_weights())
        return made, BATCH, plain, batch_of(np.eye(20, dtype=np.float32)[PLACES])

    return make


@pytest.mark.parametrize(
    "options", [{}, {"clipnorm": 0.05}, {"global_clipnorm": 0.05}, {"clipvalue": 0.01}], ids=str
)
def test_gradients_of_rows_are_those_of_a_matrix(pair: Callable[..., Any], options: dict[str, float]) -> None:
    made, batch, plain, plain_batch = pair(**options)
    made.tables.join(Lookups(LocalTables(made.tables.specs)))
    assert [name.partition(":")[2] for name in made.parameters().trainable] == ["dense/kernel", "dense/bias"]
    loss, gradients = made.gradients(batch)
    (rows,) = made.row_gradients().values()
    expected_loss, expected = plain.gradients(plain_batch)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    matrix, *others = expected.values()
    for got, wanted in zip(gradients.values(), others, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-7)
    place = {int(number): index for index, number in enumerate(SPARSE)}
    ids = [place[int(number)] for number in rows.ids]
    assert sorted(ids) == np.unique(PLACES).tolist()
    np.testing.assert_allclose(rows.values, matrix[ids], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"global_clipnorm": 0.05}], ids=str)
def test_one_worker_alone_trains_its_rows_as_a_matrix(
    pair: Callable[..., Any], options: dict[str, float]
) -> None:
    made, batch, plain, plain_batch = pair(**options)
    losses = []
    for trainer, given in ((made, batch), (plain, plain_batch)):
        model = LocalModel(trainer, restore_from="", first_step=0)
        model.prepare(given)
        losses.append([model.train(given, position=16, batches=1) for _ in range(6)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_sparse_features(trainer: Callable[..., KerasTrainer]) -> None:
    tf.keras.utils.set_random_seed(1)
    given = tf.keras.Input((3,), dtype="int64", sparse=True)
    rows = elasticdl.keras.Embedding(4, combiner="sum", name="users", initializer="normal")(given)
    made = trainer(tf.keras.Model(given, layers.Dense(1)(rows)))
    ids = tf.sparse.from_dense(tf.constant(PLACES))
    batch = dataclasses.replace(BATCH, features=ids)
    model = LocalModel(made, restore_from="", first_step=0)
    model.prepare(batch)
    losses = [model.train(batch, position=16, batches=1) for _ in range(3)]
    assert losses[-1] < losses[0]
    made.gradients(batch)
    assert sorted(made.row_gradients()["users"].ids) == sorted({*PLACES.flat} - {0})


def test_a_model_of_nothing_but_tables_follows_its_schedule(
    make_definition: Callable[..., ModelDefinition],
) -> None:
    given = tf.keras.Input((3,), dtype="int64")
    rows = layers.Flatten()(elasticdl.keras.Embedding(1, initializer="normal", name="weights")(given))
    schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([2], [0.1, 0.0])
    definition = make_definition(
        loss=lambda labels, predictions: (labels - predictions) ** 2,
        optimizer=lambda: tf.keras.optimizers.SGD(schedule),
        eval_metrics_fn=dict,
    )
    trained = KerasTrainer(definition=definition, model=tf.keras.Model(given, rows))
    model = LocalModel(trained, restore_from="", first_step=0)
    model.prepare(BATCH)
    losses = [model.train(BATCH, position=16, batches=1) for _ in range(6)]
    assert losses[0] > losses[1] > losses[2] > losses[3] == losses[4] == losses[5]
