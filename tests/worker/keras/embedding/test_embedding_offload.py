"""Large embeddings of Keras become tables, learn the same, and are ordinary again when exported or restored."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.trainer import Batch, Shard
from elasticdl.worker.trainer_factory import make_trainer

layers = tf.keras.layers
ROWS = 3000
RANDOM = np.random.default_rng(0)
IDS = tf.constant(RANDOM.integers(0, ROWS, (16, 3)))
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=16),
    position=16,
    atomic=False,
    last=True,
    size=16,
    features=IDS,
    labels=tf.constant(RANDOM.normal(size=(16, 1)).astype(np.float32)),
)
LIMIT = 4 * 8 * ROWS


def functional(**options: Any) -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    small = layers.Flatten()(layers.Embedding(ROWS, 2)(given))
    large = layers.Flatten()(layers.Embedding(ROWS, 8, name="large", **options)(given))
    return tf.keras.Model(given, layers.Dense(1)(layers.Concatenate()([small, large])))


class Subclassed(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.large = layers.Embedding(ROWS, 8, embeddings_initializer="random_normal", name="large")
        self.out = layers.Dense(1)

    def call(self, ids: Any) -> Any:
        return self.out(tf.reduce_sum(self.large(ids), axis=1))


@pytest.fixture
def make(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(network: Callable[[], Any] = functional, limit: int = LIMIT) -> KerasTrainer:
        tf.keras.utils.set_random_seed(0)
        definition = make_definition(
            model=network,
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=lambda: tf.keras.optimizers.Adagrad(0.1),
            eval_metrics_fn=dict,
        )
        trainer = make_trainer(definition, move_embeddings=limit)
        assert isinstance(trainer, KerasTrainer)
        trainer.build(BATCH)
        return trainer

    return make


def train(trainer: KerasTrainer, steps: int = 4) -> tuple[LocalModel, list[float]]:
    model = LocalModel(trainer, restore_from="", first_step=0)
    model.prepare(BATCH)
    return model, [model.train(BATCH, position=16, batches=1) for _ in range(steps)]


@pytest.mark.parametrize("network", [functional, Subclassed])
def test_large_embedding_moves_to_servers_and_learns(
    make: Callable[..., KerasTrainer], caplog: pytest.LogCaptureFixture, network: Callable[[], Any]
) -> None:
    with caplog.at_level(logging.INFO, "elasticdl.worker"):
        trainer = make(network)
    (spec,) = trainer.tables.specs
    plain = make(network, limit=0)
    names = list(plain.parameters().trainable)
    assert spec.name in names
    assert spec.initializer.kind == ("uniform" if network is functional else "normal")
    # The others have the names that they have without it.
    assert list(trainer.parameters().trainable) == [name for name in names if name != spec.name]
    assert "Moving the embedding large (3,000 rows of 8, 0 MiB) to the parameter servers" in caplog.text
    assert trainer.remarks == ["Moved to the parameter servers: embedding large (3,000 rows of 8, 0 MiB)."]
    _, losses = train(trainer)
    assert losses[-1] < losses[0]
    assert trainer.tables.own is not None
    assert trainer.tables.own.rows(spec.name)[0].tolist() == np.unique(IDS).tolist()


@pytest.mark.parametrize("kind", ["glorot_uniform", "glorot_normal"])
def test_its_rows_start_as_large_as_those_of_the_matrix(
    make: Callable[..., KerasTrainer], tmp_path: Path, kind: str
) -> None:
    """What Keras draws gets smaller with the number of rows, which a table by itself does not know."""
    trainer = make(lambda: functional(embeddings_initializer=kind))
    assert len(trainer.tables.specs) == 1
    train(trainer, steps=0)
    trainer.export(tmp_path / "model.keras", BATCH)
    found = tf.keras.models.load_model(tmp_path / "model.keras", compile=False).get_layer("large")
    deviation = np.std(found.get_weights()[0])
    assert deviation == pytest.approx((2 / (ROWS + 8)) ** 0.5, rel=0.03)


def with_rows(rows: Any, **options: Any) -> Callable[[], Any]:
    """The drawn numbers replaced by what a function makes of them."""

    def make() -> Any:
        model = functional(**options)
        layer = model.get_layer("large")
        layer.set_weights([rows(layer.get_weights()[0])])
        return model

    return make


def zero_first(drawn: Any) -> Any:
    drawn[0] = 0
    return drawn


def frozen() -> Any:
    model = functional(embeddings_initializer="orthogonal")
    model.get_layer("large").trainable = False
    return model


SET = "its values were set, and are not what its initializer draws"
MATRIX = np.random.default_rng(2).normal(size=(ROWS, 8))
NORMAL = {"embeddings_initializer": "random_normal"}


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (with_rows(np.exp), SET),
        (with_rows(lambda drawn: 2 * drawn), SET),
        (with_rows(lambda drawn: drawn + 0.02), SET),
        (with_rows(lambda drawn: MATRIX, **NORMAL), SET),
        (with_rows(zero_first), SET),
        (with_rows(zero_first, embeddings_initializer="ones"), "no initializer ones"),
        (with_rows(zero_first, embeddings_initializer=tf.keras.initializers.Constant(0.5)), SET),
        (
            lambda: functional(embeddings_initializer=tf.keras.initializers.Constant(MATRIX)),
            "its initializer is a matrix of given values",
        ),
        (lambda: functional(embeddings_initializer="orthogonal"), "no initializer orthogonal"),
        (lambda: functional(embeddings_regularizer="l2"), "regularizers"),
        (frozen, "it is not trained"),
    ],
    ids=[
        "another form",
        "larger",
        "shifted",
        "of another deviation",
        "a row",
        "ones",
        "a row of a constant",
        "matrix",
        "odd",
        "regularizer",
        "frozen",
    ],
)
def test_embedding_without_equivalent_table_stays_in_worker(
    make: Callable[..., KerasTrainer], caplog: pytest.LogCaptureFixture, network: Callable[[], Any], why: str
) -> None:
    trainer = make(network)
    assert trainer.tables.specs == []
    assert "Not moving the embedding large" in caplog.text
    assert why in caplog.text


class OtherForms(Subclassed):
    def call(self, ids: Any) -> Any:
        ragged = tf.reduce_sum(self.large(tf.RaggedTensor.from_tensor(ids)), axis=1)
        return self.out(ragged + tf.reduce_sum(self.large(tf.sparse.from_dense(ids)), axis=1))


def test_ids_of_other_forms(make: Callable[..., KerasTrainer]) -> None:
    _, losses = train(trainer := make(OtherForms))
    assert len(trainer.tables.specs) == 1
    assert losses[-1] < losses[0]


class WithAGraph(Subclassed):
    """A part of it is made into a graph by itself, perhaps before the embedding is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.of_an_experiment = layers.Dense(4)

    @tf.function  # type: ignore[untyped-decorator]
    def sums(self, ids: Any) -> Any:
        return tf.reduce_sum(self.large(ids), axis=1)

    def call(self, ids: Any) -> Any:
        return self.out(self.sums(ids))


def test_in_a_graph_of_the_users_own(make: Callable[..., KerasTrainer]) -> None:
    _, losses = train(trainer := make(WithAGraph))
    assert len(trainer.tables.specs) == 1
    assert losses[-1] < losses[0]


class Penalized(Subclassed):
    def call(self, ids: Any) -> Any:
        predictions = super().call(ids)
        self.add_loss(tf.nn.l2_loss(self.large.embeddings))
        return predictions


def test_embedding_in_a_penalty_is_not_moved(make: Callable[..., KerasTrainer]) -> None:
    with pytest.raises(UserError, match=r"the embedding large in other ways") as caught:
        train(make(Penalized))
    assert "Omit --move_embeddings_mib" in caught.value.hint


@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_exported_it_is_ordinary(make: Callable[..., KerasTrainer], tmp_path: Path, name: str) -> None:
    trainer = make()
    train(trainer)
    expected = trainer.predict(BATCH)["output"]
    trainer.export(tmp_path / name, BATCH)
    if name == "model.keras":
        loaded = tf.keras.models.load_model(tmp_path / name, compile=False)
        assert type(loaded.get_layer("large")) is layers.Embedding
        assert loaded.get_layer("large").get_weights()[0].shape == (ROWS, 8)
        found = loaded.predict(IDS, verbose=0)
    else:
        served = tf.saved_model.load(str(tmp_path / name)).signatures["serving_default"]
        (argument,) = served.structured_input_signature[1]
        (found,) = served(**{argument: IDS}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # And goes on from where it was.
    np.testing.assert_array_equal(trainer.predict(BATCH)["output"], expected)
    assert trainer.train(BATCH) > 0
