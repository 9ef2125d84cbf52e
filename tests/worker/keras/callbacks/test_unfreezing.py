"""Layers that are frozen for some epochs and trained afterwards, as in fine-tuning, by callbacks: in one worker and on
parameter servers as a loop of TensorFlow's own would; where that cannot be, an error says so.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import Model
from elasticdl.worker.trainer import Batch, Shard
from tests.worker.epochs import EPOCHS, alone, served, train

layers = tf.keras.layers
IDS = tf.constant(np.random.default_rng(0).integers(0, 20, (16, 3)))
LABELS = tf.ones((16, 1))
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=16),
    position=16,
    atomic=False,
    last=True,
    size=16,
    features=IDS,
    labels=LABELS,
)


def ordinary() -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    rows = layers.Flatten()(layers.Embedding(20, 4, name="rows")(given))
    # The normalization takes a bias out again.
    hidden = layers.BatchNormalization(name="norm")(layers.Dense(4, use_bias=False, name="body")(rows))
    return tf.keras.Model(given, layers.Dense(1)(layers.Activation("tanh")(hidden)))


def with_table() -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    rows = elasticdl.keras.Embedding(4, name="body", initializer={"kind": "normal", "stddev": 0.5})(given)
    return tf.keras.Model(given, layers.Dense(1)(layers.Flatten()(rows)))


def frozen_table() -> Any:
    model = with_table()
    model.get_layer("body").trainable = False
    return model


class InTheMiddle(tf.keras.callbacks.Callback):
    """Some layers are trained in the second epoch and in the last."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.switch(False)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.switch(epoch % 2 == 1)

    def switch(self, trained: bool) -> None:
        for layer in self.model.layers:
            if layer.name in ("rows", "body", "norm"):
                layer.trainable = trained


class OneByOne(InTheMiddle):
    """Not the layers, their variables."""

    def switch(self, trained: bool) -> None:
        for layer in self.model.layers:
            if layer.name in ("rows", "body"):
                for variable in layer.weights:
                    variable.trainable = trained


# Before Keras 3, a variable is trained or is not from its beginning.
CALLBACKS = [InTheMiddle, OneByOne] if hasattr(tf.keras, "ops") else [InTheMiddle]


def optimizer() -> Any:
    # Decay and momentum would change a variable whose gradient is zero. Not Adam: that of Keras 3 squares the gradients
    # of a row that comes twice one by one.
    return tf.keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.01)


def loss(labels: Any, predictions: Any) -> Any:
    return (labels - predictions) ** 2


@pytest.fixture
def make(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(network: Callable[[], Any], callback: Any = InTheMiddle, **options: Any) -> KerasTrainer:
        tf.keras.utils.set_random_seed(0)
        definition = make_definition(
            loss=loss, optimizer=optimizer, callbacks=lambda: [callback()], eval_metrics_fn=dict
        )
        return KerasTrainer(definition=definition, model=network(), **options)

    return make


@pytest.fixture
def on_servers(table_servers: tuple[list[Any], list[str]]) -> Callable[[KerasTrainer], Model]:
    return lambda trainer: served(trainer, table_servers[1])


def plainly(network: Callable[[], Any], callback: Any) -> list[float]:
    tf.keras.utils.set_random_seed(0)
    model, steps = network(), optimizer()
    steps.build(model.trainable_variables)
    callback.set_model(model)
    losses = []
    for epoch in range(EPOCHS):
        callback.on_epoch_begin(epoch)
        for _ in range(3):
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(loss(LABELS, model(IDS, training=True)))
            variables = model.trainable_variables
            steps.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
            losses.append(float(value))
    return losses


@pytest.mark.parametrize("callback", CALLBACKS)
def test_one_worker(make: Callable[..., KerasTrainer], callback: Any) -> None:
    trainer = make(ordinary, callback)
    wanted = plainly(ordinary, callback())
    np.testing.assert_allclose(train(trainer, alone(trainer), BATCH), wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("network", "callback"),
    [
        *((ordinary, callback) for callback in CALLBACKS),
        # `contract/` has layers that are frozen as a whole.
        *((network, callback) for network in (with_table, frozen_table) for callback in CALLBACKS[1:]),
    ],
)
def test_servers_do_as_one_worker_does(
    make: Callable[..., KerasTrainer],
    on_servers: Callable[[KerasTrainer], Model],
    network: Callable[[], Any],
    callback: Any,
) -> None:
    here, there = make(network, callback), make(network, callback)
    np.testing.assert_allclose(
        train(there, on_servers(there), BATCH), train(here, alone(here), BATCH), rtol=1e-4
    )


@pytest.mark.parametrize(
    ("network", "layer", "move"),
    [(ordinary, "rows", 0), (ordinary, "rows", 1), (with_table, "body", 0), (frozen_table, "body", 0)],
    ids=["ordinary", "moved", "a table", "a frozen table"],
)
def test_only_while_it_is_not_frozen(
    make: Callable[..., KerasTrainer],
    on_servers: Callable[[KerasTrainer], Model],
    network: Callable[[], Any],
    layer: str,
    move: int,
) -> None:
    """Also an embedding whose rows are on the servers, or were moved there."""
    trainer = make(network, move_embeddings=move)
    model = on_servers(trainer)
    model.prepare(BATCH)
    assert len(trainer._moved) == move

    def rows() -> Any:
        return trainer.model.get_layer(layer)(IDS).numpy()

    callbacks = trainer.callbacks(leader=True, epochs=EPOCHS)
    changed = []
    for epoch in range(EPOCHS):
        callbacks.fire("on_epoch_begin", epoch, {})
        before = rows()
        model.train(BATCH, position=16, batches=1)
        model.thaw()
        changed.append(not np.array_equal(rows(), before))
    model.close()
    assert changed == [False, True, False, True]


@pytest.mark.parametrize("where", ["servers", "one worker"])
def test_freezing_by_turns_makes_each_graph_once(
    make: Callable[..., KerasTrainer], on_servers: Callable[[KerasTrainer], Model], where: str
) -> None:
    calls = []

    class Counts(layers.Layer):  # type: ignore[name-defined]
        def call(self, inputs: Any) -> Any:
            calls.append(1)
            return inputs

    def counting() -> Any:
        given = tf.keras.Input((3,), dtype="int64")
        rows = layers.Flatten()(layers.Embedding(20, 4)(given))
        body = layers.Dense(4, name="body")(Counts()(rows))
        return tf.keras.Model(given, layers.Dense(1)(body))

    trainer = make(counting)
    model = on_servers(trainer) if where == "servers" else alone(trainer)
    model.prepare(BATCH)
    callbacks = trainer.callbacks(leader=True, epochs=2 * EPOCHS)
    made = []
    for epoch in range(2 * EPOCHS):
        callbacks.fire("on_epoch_begin", epoch, {})
        model.train(BATCH, position=16, batches=1)
        made.append(len(calls))
    model.close()
    assert made[0] < made[1]
    assert set(made[1:]) == {made[1]}


def test_layer_frozen_at_build_cannot_be_trained_in_one_worker_later(
    make: Callable[..., KerasTrainer],
) -> None:
    def frozen() -> Any:
        model = ordinary()
        model.get_layer("body").trainable = False
        return model

    trainer = make(frozen)
    model = alone(trainer)
    model.prepare(BATCH)
    model.train(BATCH, position=16, batches=1)
    trainer.model.get_layer("body").trainable = True
    with pytest.raises(UserError, match=r"body/kernel.*: frozen when the model was made") as caught:
        model.train(BATCH, position=16, batches=2)
    assert "on_train_begin" in caught.value.hint
    model.close()
