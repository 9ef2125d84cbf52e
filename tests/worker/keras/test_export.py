"""Exported models compute what the trained one did, in whatever form, and appear whole or not at all."""

import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Shard

layers = tf.keras.layers


class Subclass(tf.keras.Model):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = layers.Dense(width, activation="tanh")
        self.out = layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs["x"]))


def sequential() -> Any:
    return tf.keras.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(1)])


def functional() -> Any:
    given = tf.keras.Input((3,), name="x")
    return tf.keras.Model({"x": given}, layers.Dense(1)(layers.Dense(4)(given)))


@pytest.fixture
def trained(make_definition: Callable[..., ModelDefinition]) -> Callable[..., tuple[KerasTrainer, Batch]]:
    def make(model: Any) -> tuple[KerasTrainer, Batch]:
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=lambda: tf.keras.optimizers.Adam(0.01),
            eval_metrics_fn=dict,
        )
        trainer = KerasTrainer(definition=definition, model=model)
        values = tf.constant(np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32))
        features = values if isinstance(model, tf.keras.Sequential) else {"x": values}
        batch = Batch(
            shard=Shard(lease_id=0, epoch=0, start=0, end=6),
            position=6,
            atomic=False,
            last=True,
            size=6,
            features=features,
            labels=tf.ones([6, 1]),
        )
        trainer.train(batch)
        return trainer, batch

    return make


@pytest.mark.parametrize(
    "make", [sequential, functional, lambda: Subclass(4)], ids=["sequential", "functional", "subclass"]
)
def test_saved_model(trained: Callable[..., Any], tmp_path: Path, make: Callable[[], Any]) -> None:
    trainer, batch = trained(make())
    path = tmp_path / "below" / "model"
    assert trainer.export(path, batch) == [f"SavedModel: {path}"]
    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    values = batch.features if isinstance(batch.features, tf.Tensor) else batch.features["x"]
    (output,) = signature(**{name: values[:2]}).values()
    np.testing.assert_allclose(output, trainer.predict(batch)["output"][:2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["list", "dictionary"])
def test_saved_model_keeps_the_names_of_inputs(
    trained: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    age, income = tf.keras.Input((2,), name="age"), tf.keras.Input((2,), name="income")
    outputs = layers.Dense(1)(layers.Subtract()([age, income]))
    model = tf.keras.Model([income, age] if kind == "list" else {"age": age, "income": income}, outputs)
    ages, incomes = tf.ones([6, 2]), 5.0 * tf.ones([6, 2])
    features = (incomes, ages) if kind == "list" else {"age": ages, "income": incomes}
    shard = Shard(lease_id=0, epoch=0, start=0, end=6)
    batch = Batch(shard=shard, position=6, atomic=False, last=True, size=6, features=features)
    trainer = KerasTrainer(definition=trained(functional())[0]._definition, model=model)
    trainer.export(tmp_path / "model", batch)
    signature = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    (output,) = signature(age=ages, income=incomes).values()
    np.testing.assert_allclose(output, trainer.predict(batch)["output"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [sequential, functional], ids=["sequential", "functional"])
def test_keras_file(trained: Callable[..., Any], tmp_path: Path, make: Callable[[], Any]) -> None:
    trainer, batch = trained(make())
    path = tmp_path / "model.keras"
    assert trainer.export(path, batch) == [f"Keras model: {path}"]
    loaded = tf.keras.models.load_model(path)
    np.testing.assert_allclose(loaded(batch.features), trainer.predict(batch)["output"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_takes_the_place_of_an_older_one_and_leaves_nothing_beside(
    trained: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    trainer, batch = trained(functional())
    path = tmp_path / name
    trainer.export(path, batch)
    before = trainer.predict(batch)["output"]
    for _ in range(5):
        trainer.train(batch)
    trainer.export(path, batch)
    assert [child.name for child in tmp_path.iterdir()] == [name]
    if name.endswith(".keras"):
        now = np.asarray(tf.keras.models.load_model(path)(batch.features))
        assert not np.allclose(now, before)
        np.testing.assert_allclose(now, trainer.predict(batch)["output"], rtol=1e-5, atol=1e-6)


def test_model_that_cannot_be_written_leaves_the_older_one(
    trained: Callable[..., Any], tmp_path: Path
) -> None:
    class Unsaveable(layers.Layer):  # type: ignore[name-defined]
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.function = function

        def call(self, inputs: Any) -> Any:
            return self.function(inputs)

        def get_config(self) -> Any:
            raise NotImplementedError("it cannot be described")

    given = tf.keras.Input((3,), name="x")
    model = tf.keras.Model({"x": given}, layers.Dense(1)(Unsaveable(lambda x: x)(given)))
    trainer, batch = trained(model)
    path = tmp_path / "model.keras"
    path.write_text("the older one")
    with pytest.raises(UserError, match="cannot be exported to"):
        trainer.export(path, batch)
    assert path.read_text() == "the older one"
    assert [child.name for child in tmp_path.iterdir()] == ["model.keras"]


def test_place_that_cannot_be_written(trained: Callable[..., Any], tmp_path: Path) -> None:
    trainer, batch = trained(functional())
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written to"):
        trainer.export(tmp_path / "file" / "model", batch)


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file may grow beyond a few bytes: what writing to a full disk is like, without one."""
    # A limit on the size of files would truncate what Python caches of a module, for good.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_no_room(
    trained: Callable[..., Any], tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    trainer, batch = trained(functional())
    request.getfixturevalue("no_room")
    with pytest.raises(UserError, match="cannot be written to"):
        trainer.export(tmp_path / name, batch)
    assert list(tmp_path.iterdir()) == []
