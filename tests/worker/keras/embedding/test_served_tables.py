"""A Keras model with tables on real parameter servers: as one worker alone, and with prefetched rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.errors import UserError
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.server_errors import CallStopped
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.trainer import Batch, Shard

layers = tf.keras.layers
RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(-(2**63), 2**63 - 1, 40)


def batches(count: int) -> list[Batch]:
    return [
        Batch(
            shard=Shard(lease_id=1, epoch=0, start=0, end=800),
            position=16 * (number + 1),
            atomic=False,
            last=False,
            size=16,
            features={
                "ids": tf.constant(IDS[RANDOM.integers(0, 40, (16, 3))]),
                "words": tf.RaggedTensor.from_row_lengths(
                    IDS[RANDOM.integers(0, 40, 24)], RANDOM.permutation([1, 2] * 8)
                ),
            },
            labels=tf.constant(RANDOM.normal(size=(16, 1)).astype(np.float32)),
        )
        for number in range(count)
    ]


def network() -> Any:
    ids = tf.keras.Input((3,), dtype="int64", name="ids")
    words = tf.keras.Input((None,), dtype="int64", name="words", ragged=True)
    rows = layers.Flatten()(elasticdl.keras.Embedding(4, initializer="normal", name="rows")(ids))
    bags = elasticdl.keras.Embedding(4, combiner="mean", name="bags")(words)
    out = layers.Dense(1)(layers.Concatenate()([rows, bags]))
    return tf.keras.Model({"ids": ids, "words": words}, out)


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[[], KerasTrainer]:
    def make() -> KerasTrainer:
        tf.keras.utils.set_random_seed(0)
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=lambda: tf.keras.optimizers.Adagrad(0.1, global_clipnorm=1.0),
            eval_metrics_fn=dict,
        )
        return KerasTrainer(definition=definition, model=network())

    return make


def train(model: Any, given: list[Batch]) -> list[float]:
    losses = []
    for number, batch in enumerate(given):
        model.prepare(batch)
        upcoming = given[number + 1] if number + 1 < len(given) else None
        losses.append(model.train(batch, position=batch.position, batches=number + 1, upcoming=upcoming))
    model.settle()
    return losses


@pytest.mark.parametrize("asynchronous", [False, True])
def test_through_servers(
    trainer: Callable[[], KerasTrainer],
    table_servers: tuple[list[Any], list[str]],
    asynchronous: bool,
) -> None:
    client = ParameterClient(table_servers[1], "token", "worker-0", generation=1, patience_seconds=60)
    served = ServedModel(trainer(), client, pull_every=1, restore_from="", asynchronous=asynchronous)
    given = batches(10)
    losses = train(served, given)
    if asynchronous:
        assert served._ahead is not None
        # Two lookups a batch; the first two batches were not foreseen.
        assert (served._ahead.hits, served._ahead.misses) == (2 * 8, 2 * 2)
        assert np.mean(train(served, given)) < np.mean(losses)
    else:
        alone = LocalModel(trainer(), restore_from="", first_step=0)
        np.testing.assert_allclose(losses, train(alone, given), rtol=1e-4)
    served.close()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("problem", [CallStopped("there is no point in it"), UserError("no room")])
def test_lookup_error_is_raised_unchanged(
    trainer: Callable[[], KerasTrainer],
    table_servers: tuple[list[Any], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    asynchronous: bool,
    problem: Exception,
) -> None:
    """Through TensorFlow, which makes of every error one of its own: the loop goes on after some of them."""
    client = ParameterClient(table_servers[1], "token", "worker-0", generation=1, patience_seconds=60)
    served = ServedModel(trainer(), client, pull_every=1, restore_from="", asynchronous=asynchronous)
    given = batches(3)
    train(served, given[:2])

    def pull_rows(*_: Any, **__: Any) -> Any:
        raise problem

    with monkeypatch.context() as context:
        context.setattr(client, "pull_rows", pull_rows)
        with pytest.raises(type(problem), match=str(problem)) as raised:
            served.train(given[2], position=48, batches=3)
        assert raised.value is problem
    # And it is not raised again.
    served.train(given[2], position=48, batches=3)
    served.settle()
    served.close()
