"""A model whose embeddings have tables, exported: a SavedModel that needs nothing of ours, or a file with the rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.trainer import Batch, Shard

layers = tf.keras.layers
IDS = np.array([[1, -5, 2**62], [7, 7, 2**63 - 1], [-(2**63), 0, 1], [3, 2, 1]])
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=4),
    position=4,
    atomic=False,
    last=True,
    size=4,
    features=tf.constant(IDS),
    labels=tf.ones((4, 1)),
)


def functional() -> Any:
    given = tf.keras.Input((3,), dtype="int64", name="ids")
    first = elasticdl.keras.Embedding(4, initializer={"kind": "uniform", "low": 1, "high": 2}, name="first")
    second = elasticdl.keras.Embedding(4, table="bags", combiner="sqrtn")
    third = elasticdl.keras.Embedding(4, table="bags", combiner="sum")
    parts = [layers.Flatten()(first(given)), second(given), third(given)]
    return tf.keras.Model(given, layers.Dense(1)(layers.Concatenate()(parts)))


class Subclassed(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first = elasticdl.keras.Embedding(4, combiner="mean")
        self.out = layers.Dense(1)

    def call(self, ids: Any) -> Any:
        return self.out(self.first(ids))


@pytest.fixture
def trained(make_definition: Callable[..., ModelDefinition]) -> Callable[[Any], KerasTrainer]:
    def make(network: Any) -> KerasTrainer:
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=lambda: tf.keras.optimizers.Adagrad(0.1),
            eval_metrics_fn=dict,
        )
        trainer = KerasTrainer(definition=definition, model=network)
        model = LocalModel(trainer, restore_from="", first_step=0)
        model.prepare(BATCH)
        for _ in range(3):
            model.train(BATCH, position=4, batches=1)
        return trainer

    return make


@pytest.mark.parametrize("network", [functional, Subclassed])
def test_a_saved_model_gives_what_the_model_gives(
    trained: Callable[[Any], KerasTrainer], tmp_path: Path, network: Callable[[], Any]
) -> None:
    trainer = trained(network())
    expected = trainer.predict(BATCH)["output"]
    trainer.export(tmp_path / "model", BATCH)
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    (name,) = served.structured_input_signature[1]
    (found,) = served(**{name: tf.constant(IDS)}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # Ids without a row have one in common.
    (others,) = served(**{name: tf.constant([[100, 200, 300], [300, 400, 500]], tf.int64)}).values()
    np.testing.assert_allclose(others[0], others[1], rtol=1e-5)
    # The model itself goes on from where it was.
    np.testing.assert_array_equal(trainer.predict(BATCH)["output"], expected)
    assert trainer.train(BATCH) > 0


def test_a_keras_file_has_the_rows(trained: Callable[[Any], KerasTrainer], tmp_path: Path) -> None:
    trainer = trained(functional())
    trainer.export(tmp_path / "model.keras", BATCH)
    loaded = tf.keras.models.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(
        loaded.predict(IDS, verbose=0), trainer.predict(BATCH)["output"], rtol=1e-5, atol=1e-6
    )
