"""Training steps: what Keras itself would compute, for models of every kind and structures of every shape."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Shard

layers = tf.keras.layers
SHARD = Shard(lease_id=0, epoch=0, start=0, end=8)


def batch_of(features: Any, labels: Any, size: int = 8) -> Batch:
    return Batch(
        shard=SHARD, position=8, atomic=False, last=True, size=size, features=features, labels=labels
    )


def numbers(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def squared(labels: Any, predictions: Any) -> Any:
    return tf.reduce_mean((predictions - labels) ** 2, axis=1)


def sequential() -> Any:
    return tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])


def sequential_without_shape() -> Any:
    return tf.keras.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(1)])


def functional() -> Any:
    given = tf.keras.Input((3,))
    return tf.keras.Model(given, layers.Dense(1)(layers.Dense(4, activation="tanh")(given)))


class Subclass(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = layers.Dense(4, activation="tanh")
        self.out = layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(model: Any, loss: Any = squared, optimizer: Any = None) -> KerasTrainer:
        definition = make_definition(
            loss=loss, optimizer=optimizer or (lambda: tf.keras.optimizers.SGD(0.1)), eval_metrics_fn=dict
        )
        return KerasTrainer(definition=definition, model=model)

    return make


@pytest.mark.parametrize("make", [sequential, sequential_without_shape, functional, Subclass])
def test_same_steps_as_keras(trainer: Callable[..., KerasTrainer], make: Callable[[], Any]) -> None:
    features, labels = numbers(8, 3), numbers(8, 1, seed=1)
    ours, theirs = make(), make()
    theirs(features)
    trained = trainer(ours, optimizer=lambda: tf.keras.optimizers.Adam(0.05))
    batch = batch_of(features, labels)
    trained.build(batch)
    ours.set_weights(theirs.get_weights())
    theirs.compile(tf.keras.optimizers.Adam(0.05), loss="mse")
    losses = [trained.train(batch) for _ in range(5)]
    expected = [theirs.train_on_batch(features, labels) for _ in range(5)]
    np.testing.assert_allclose(losses, np.ravel(expected), rtol=1e-4)
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_loss_may_be_one_number_or_one_for_each_sample(trainer: Callable[..., KerasTrainer]) -> None:
    model = functional()
    batch = batch_of(numbers(8, 3), numbers(8, 1, seed=1))
    each = trainer(model).gradients(batch)
    mean = trainer(model, loss=lambda y, p: tf.reduce_mean((p - y) ** 2)).gradients(batch)
    assert each[0] == pytest.approx(mean[0])
    for one, other in zip(each[1].values(), mean[1].values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_losses_of_the_model_are_added(trainer: Callable[..., KerasTrainer]) -> None:
    given = tf.keras.Input((3,))
    regular = tf.keras.regularizers.L2(0.5)
    model = tf.keras.Model(given, layers.Dense(1, kernel_regularizer=regular)(given))
    loss = trainer(model, loss=lambda y, p: 0.0 * p).train(batch_of(numbers(8, 3), numbers(8, 1)))
    # The step itself changed the weights, by its own gradient of 0.1 * 2 * 0.5 * w.
    before = model.get_weights()[0] / 0.9
    assert loss == pytest.approx(0.5 * float((before**2).sum()), rel=1e-4)


def test_conditions_on_tensors_in_the_loss(trainer: Callable[..., KerasTrainer]) -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        error = tf.reduce_mean((predictions - labels) ** 2)
        if error > 1e6:
            return error * 0.0
        return error

    assert trainer(functional(), loss=loss).train(batch_of(numbers(8, 3), numbers(8, 1))) > 0


def test_batches_of_any_size_are_one_graph(trainer: Callable[..., KerasTrainer]) -> None:
    traced = []

    def loss(labels: Any, predictions: Any) -> Any:
        traced.append(predictions.shape)
        return squared(labels, predictions)

    trained = trainer(functional(), loss=loss)
    for size in (8, 5, 8, 1, 3):
        trained.train(batch_of(numbers(size, 3), numbers(size, 1), size))
    assert [tuple(shape) for shape in traced] == [(None, 1)]


def test_several_inputs_and_outputs_in_dicts(trainer: Callable[..., KerasTrainer]) -> None:
    one, two = tf.keras.Input((3,), name="one"), tf.keras.Input((2,), name="two")
    joined = layers.Concatenate()([one, two])
    model = tf.keras.Model(
        inputs={"one": one, "two": two},
        outputs={"sum": layers.Dense(1)(joined), "kind": layers.Dense(4)(joined)},
    )

    def loss(labels: Any, predictions: Any) -> Any:
        kind = tf.nn.sparse_softmax_cross_entropy_with_logits(labels["kind"], predictions["kind"])
        return squared(labels["sum"], predictions["sum"]) + kind

    trained = trainer(model, loss=loss)
    batch = batch_of(
        {"two": numbers(8, 2), "one": numbers(8, 3)}, {"sum": numbers(8, 1), "kind": tf.range(8) % 4}
    )
    losses = [trained.train(batch) for _ in range(30)]
    assert losses[-1] < losses[0]
    outputs = trained.predict(batch)
    assert {name: value.shape for name, value in outputs.items()} == {"sum": (8, 1), "kind": (8, 4)}


def test_several_inputs_and_outputs_in_order(trainer: Callable[..., KerasTrainer]) -> None:
    one, two = tf.keras.Input((3,)), tf.keras.Input((2,))
    joined = layers.Concatenate()([one, two])
    model = tf.keras.Model([one, two], [layers.Dense(1, name="a")(joined), layers.Dense(1, name="b")(joined)])
    trained = trainer(model, loss=lambda y, p: squared(y[0], p[0]) + squared(y[1], p[1]))
    batch = batch_of((numbers(8, 3), numbers(8, 2)), (numbers(8, 1), numbers(8, 1, seed=3)))
    losses = [trained.train(batch) for _ in range(30)]
    assert losses[-1] < losses[0]
    assert [value.shape for value in trained.predict(batch).values()] == [(8, 1), (8, 1)]


def test_subclass_with_several_outputs(trainer: Callable[..., KerasTrainer]) -> None:
    class Two(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.one = layers.Dense(1)
            self.two = layers.Dense(2)

        def call(self, inputs: Any, training: bool = False) -> Any:
            return self.one(inputs["x"]), self.two(inputs["x"])

    trained = trainer(Two(), loss=lambda y, p: squared(y, p[0]))
    batch = batch_of({"x": numbers(8, 3)}, numbers(8, 1))
    losses = [trained.train(batch) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert {name: value.shape for name, value in trained.predict(batch).items()} == {
        "output_0": (8, 1),
        "output_1": (8, 2),
    }


def test_dropout_and_normalization_know_when_they_train(trainer: Callable[..., KerasTrainer]) -> None:
    given = tf.keras.Input((3,))
    model = tf.keras.Model(given, layers.Dense(1)(layers.Dropout(0.5)(layers.BatchNormalization()(given))))
    trained = trainer(model)
    batch = batch_of(numbers(8, 3) + 5.0, numbers(8, 1))
    before = trained.parameters().state
    trained.train(batch)
    after = trained.parameters().state
    assert any(np.any(before[name] != after[name]) for name in before)
    first, second = trained.predict(batch), trained.predict(batch)
    np.testing.assert_array_equal(first["output"], second["output"])
    assert all(np.array_equal(after[name], trained.parameters().state[name]) for name in after)
