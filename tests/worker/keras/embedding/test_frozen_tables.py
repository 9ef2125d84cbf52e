"""Rows of an embedding that is frozen stay as they are: in a job, and in a notebook."""

from collections.abc import Callable
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


def network(*, everything: bool = False) -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    names = ("frozen", "trained")
    made = [elasticdl.keras.Embedding(4, name=name, initializer="normal") for name in names]
    model = tf.keras.Model(
        given, layers.Dense(1)(layers.Flatten()(layers.Add()([one(given) for one in made])))
    )
    for one in made if everything else made[:1]:
        one.trainable = False
    return model


def rows(model: Any) -> dict[str, Any]:
    return {name: model.get_layer(name)(IDS, training=False).numpy() for name in ("frozen", "trained")}


def changed(model: Any, train: Callable[[], None]) -> set[str]:
    before = rows(model)
    train()
    return {name for name, after in rows(model).items() if not np.array_equal(after, before[name])}


@pytest.mark.parametrize("where", ["servers", "one worker"])
@pytest.mark.parametrize("everything", [False, True], ids=["one", "all"])
def test_in_a_job(
    make_definition: Callable[..., ModelDefinition],
    table_servers: tuple[list[Any], list[str]],
    where: str,
    everything: bool,
) -> None:
    definition = make_definition(
        loss=lambda labels, predictions: (labels - predictions) ** 2,
        optimizer=lambda: tf.keras.optimizers.SGD(0.1),
    )
    tf.keras.utils.set_random_seed(0)
    trainer = KerasTrainer(definition=definition, model=network(everything=everything))
    model: Model = LocalModel(trainer, restore_from="", first_step=0)
    if where == "servers":
        client = ParameterClient(table_servers[1], "token", "worker-0", generation=1, patience_seconds=60)
        model = ServedModel(trainer, client, pull_every=1, restore_from="")
    model.prepare(BATCH)

    def train() -> None:
        losses = [model.train(BATCH, position=16, batches=1) for _ in range(3)]
        assert losses[-1] < losses[0]

    assert changed(trainer.model, train) == (set() if everything else {"trained"})
    model.close()


def test_in_a_notebook() -> None:
    model = network()
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    elasticdl.keras.attach(model)
    assert changed(model, lambda: model.fit(IDS, LABELS, epochs=3, verbose=0)) == {"trained"}
    assert len(model.get_layer("frozen")._own().tables) == 0
