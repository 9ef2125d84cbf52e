"""`elasticdl.keras.Embedding` by itself: what it gives and what it learns, for ids of any form."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

import elasticdl.keras
from elasticdl.errors import UserError

layers = tf.keras.layers
SPARSE = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 20)
PLACES = np.random.default_rng(1).integers(0, 20, size=(32, 3))
IDS = SPARSE[PLACES]
LABELS = np.random.default_rng(2).normal(size=(32, 1)).astype(np.float32)
ONE_HOT = np.eye(20, dtype=np.float32)[PLACES]
RAGGED = tf.ragged.constant([[5, 7], [], [9, 5, 5]], dtype=tf.int64)
RAGGED_WEIGHTS = tf.ragged.constant([[1.0, 3.0], [], [2.0, 1.0, 0.5]])


def row(layer: Any, number: int) -> NDArray[Any]:
    values: NDArray[Any] = layer(tf.constant([[number]], tf.int64)).numpy().reshape(-1)
    return values


def network(embedding: Any, given: Any = None) -> Any:
    """Uses one embedding twice."""
    given = tf.keras.Input((3,), dtype="int64") if given is None else given
    both = layers.Concatenate()([embedding(given), embedding(given[:, ::-1])])
    return tf.keras.Model(given, layers.Dense(1)(layers.Flatten()(both)))


@pytest.mark.parametrize(
    ("optimizer", "clipping"),
    [("sgd", {}), ("adagrad", {}), ("sgd", {"clipnorm": 0.05}), ("sgd", {"clipvalue": 0.01})],
)
def test_fit_trains_rows_as_keras_trains_a_matrix(optimizer: str, clipping: dict[str, float]) -> None:
    ours = elasticdl.keras.Embedding(4, initializer="normal")
    start = ours(tf.constant(SPARSE)).numpy()
    # Not Keras's own embedding: its optimizers do not add up the gradients of a row that comes more than once.
    theirs = layers.Dense(4, use_bias=False)
    models = [network(ours), network(theirs, tf.keras.Input((3, 20)))]
    theirs.set_weights([start])
    models[1].layers[-1].set_weights(models[0].layers[-1].get_weights())
    for model, ids in zip(models, (IDS, ONE_HOT), strict=True):
        config = {"learning_rate": 0.1, **clipping}
        made = tf.keras.optimizers.get({"class_name": optimizer, "config": config})
        model.compile(optimizer=made, loss="mse")
        elasticdl.keras.attach(model)
        model.fit(ids, LABELS, batch_size=8, epochs=5, shuffle=False, verbose=0)
    predictions = [model.predict(ids, verbose=0) for model, ids in zip(models, (IDS, ONE_HOT), strict=True)]
    np.testing.assert_allclose(predictions[0], predictions[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours(tf.constant(SPARSE)), theirs.get_weights()[0], rtol=1e-4, atol=1e-5)


def test_norm_of_all_gradients_without_rows_warns(caplog: pytest.LogCaptureFixture) -> None:
    users = elasticdl.keras.Embedding(4, name="users", initializer="zeros")
    model = network(users)
    model.compile(optimizer=tf.keras.optimizers.SGD(1.0, global_clipnorm=0.001), loss="mse")
    elasticdl.keras.attach(model)
    model.fit(IDS, LABELS, batch_size=32, epochs=2, verbose=0)
    _, values = users._own().rows()
    assert np.linalg.norm(values) <= 0.0021
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["global_clipnorm"]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weights_of_dense_ids_equal_those_of_ragged_ids(combiner: str) -> None:
    layer = elasticdl.keras.Embedding(4, initializer="normal", combiner=combiner)
    ids, weights = tf.constant([[5, 7]]), tf.constant([[1.0, 3.0]])
    ragged = layer(tf.RaggedTensor.from_tensor(ids), tf.RaggedTensor.from_tensor(weights))
    np.testing.assert_allclose(layer(ids, weights), ragged, rtol=1e-5)


def test_ragged_without_a_combiner_stays_ragged() -> None:
    layer = elasticdl.keras.Embedding(2, initializer="normal")
    got = layer(RAGGED)
    assert got.row_lengths().numpy().tolist() == [2, 0, 3]
    np.testing.assert_array_equal(got.flat_values.numpy()[4], row(layer, 5))


@pytest.mark.parametrize("form", ["ragged", "sparse"])
def test_models_of_ragged_and_sparse_inputs_learn(form: str) -> None:
    given = tf.keras.Input((None,), dtype="int64", **{form: True})
    layer = elasticdl.keras.Embedding(3, combiner="mean", initializer="normal")
    model = tf.keras.Model(given, layers.Dense(1)(layer(given)))
    model.compile(optimizer=tf.keras.optimizers.SGD(0.5), loss="mse")
    elasticdl.keras.attach(model)
    ids = RAGGED if form == "ragged" else RAGGED.to_sparse()
    before = row(layer, 7)
    losses = model.fit(
        tf.data.Dataset.from_tensors((ids, tf.constant([[1.0], [0.0], [-1.0]]))), epochs=20, verbose=0
    ).history["loss"]
    assert losses[-1] < 0.2 * losses[0]
    assert not np.array_equal(row(layer, 7), before)


def test_a_saved_model_has_its_rows(tmp_path: Any) -> None:
    model = network(elasticdl.keras.Embedding(4, name="users", initializer={"kind": "normal", "stddev": 0.1}))
    model.compile(optimizer="adagrad", loss="mse")
    model.fit(IDS, LABELS, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(IDS, verbose=0), model.predict(IDS, verbose=0))


def test_keras_initializers_are_understood() -> None:
    layer = elasticdl.keras.Embedding(8, initializer=tf.keras.initializers.RandomUniform(1.0, 2.0))
    rows = layer(tf.constant(SPARSE)).numpy()
    assert rows.min() >= 1.0
    assert rows.max() <= 2.0
    with pytest.raises(UserError, match="Orthogonal"):
        elasticdl.keras.Embedding(8, initializer=tf.keras.initializers.Orthogonal())


def test_forms_of_ids_that_do_not_fit_are_rejected() -> None:
    with pytest.raises(UserError, match="no combiner"):
        elasticdl.keras.Embedding(4)(RAGGED.to_sparse())
    with pytest.raises(UserError, match="must be ragged"):
        elasticdl.keras.Embedding(4, combiner="sum")(RAGGED, RAGGED_WEIGHTS.to_sparse())


@pytest.mark.parametrize("form", ["ragged", "sparse"])
@pytest.mark.parametrize("traced", [True, False])
def test_weights_of_another_form_than_the_ids_are_refused(form: str, traced: bool) -> None:
    """As many, but not of the same samples: they would be taken for those of other ids."""
    ids, weights = tf.ragged.constant([[5, 7], [9]]), tf.ragged.constant([[1.0], [2.0, 3.0]])
    layer = elasticdl.keras.Embedding(4, combiner="sum")
    call = tf.function(layer) if traced else layer
    given = (ids, weights) if form == "ragged" else (ids.to_sparse(), weights.to_sparse())
    with pytest.raises(tf.errors.InvalidArgumentError, match="Weights do not have the form of the ids"):
        call(*given)
