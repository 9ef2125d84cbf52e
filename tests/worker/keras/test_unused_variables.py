"""Variables that the loss does not depend on stay as they are, as Keras leaves them: on parameter servers, in one
worker, and beside tables.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.trainer import Batch, Shard

layers = tf.keras.layers
RANDOM = np.random.default_rng(0)
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=16),
    position=16,
    atomic=False,
    last=True,
    size=16,
    features=tf.constant(RANDOM.integers(0, 20, (16, 3))),
    labels=tf.constant(RANDOM.normal(size=(16, 1)).astype(np.float32)),
)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    # A gradient of zeros would make zeros of the variable.
    "ftrl": lambda: tf.keras.optimizers.Ftrl(0.05),
    # It would let it decay.
    "adamw": lambda: tf.keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "clipped": lambda: tf.keras.optimizers.SGD(0.1, clipnorm=0.1),
    "clipped together": lambda: tf.keras.optimizers.SGD(0.1, global_clipnorm=0.1),
}


def network(*, tables: bool) -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    if tables:
        numbers = layers.Flatten()(elasticdl.keras.Embedding(4, initializer="normal", name="rows")(given))
    else:
        numbers = layers.Rescaling(0.1)(given)
    heads = {name: layers.Dense(1, name=name)(numbers) for name in ("unused", "used")}
    return tf.keras.Model(given, heads)


@pytest.fixture(params=[False, True], ids=["dense", "tables"])
def trainer(
    request: Any, make_definition: Callable[..., ModelDefinition]
) -> Callable[[Callable[[], Any]], KerasTrainer]:
    def make(optimizer: Callable[[], Any]) -> KerasTrainer:
        tf.keras.utils.set_random_seed(0)
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions["used"]) ** 2,
            optimizer=optimizer,
            eval_metrics_fn=dict,
        )
        made = KerasTrainer(definition=definition, model=network(tables=request.param))
        made.build(BATCH)
        return made

    return make


def by_head(values: dict[str, Any]) -> dict[str, Any]:
    return {name.partition(":")[2]: value for name, value in values.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_unused_variables_stay_as_in_keras(
    trainer: Callable[..., KerasTrainer], table_servers: tuple[list[Any], list[str]], name: str
) -> None:
    client = ParameterClient(table_servers[1], "token", "worker-0", generation=1, patience_seconds=60)
    there, here = trainer(OPTIMIZERS[name]), trainer(OPTIMIZERS[name])
    before = by_head(there.parameters().trainable)
    served = ServedModel(there, client, pull_every=1, restore_from="")
    # Without tables all of this is Keras.
    alone = LocalModel(here, restore_from="", first_step=0)
    losses = []
    for model in (served, alone):
        model.prepare(BATCH)
        losses.append([model.train(BATCH, position=16, batches=1) for _ in range(4)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    on_servers, in_worker = by_head(dict(client.pull().trainable)), by_head(here.parameters().trainable)
    served.close()
    assert on_servers.keys() == {"unused/kernel", "unused/bias", "used/kernel", "used/bias"}
    for key, start in before.items():
        np.testing.assert_allclose(on_servers[key], in_worker[key], rtol=1e-4, atol=1e-6, err_msg=key)
        for values in (on_servers, in_worker):
            assert np.array_equal(values[key], start) == key.startswith("unused/"), key


def test_there_is_no_gradient_of_it(
    trainer: Callable[..., KerasTrainer],
    table_servers: tuple[list[Any], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = ParameterClient(table_servers[1], "token", "worker-0", generation=1, patience_seconds=60)
    made = trainer(OPTIMIZERS["ftrl"])
    model = ServedModel(made, client, pull_every=1, restore_from="")
    model.prepare(BATCH)
    for _ in range(2):
        _, gradients = made.gradients(BATCH)
        assert by_head(gradients).keys() == {"used/kernel", "used/bias"}
    model.close()
    (warning,) = [record.getMessage() for record in caplog.records if "gradient" in record.getMessage()]
    assert "unused/kernel" in warning
    assert "unused/bias" in warning
