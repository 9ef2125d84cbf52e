"""The optimizer's learning rate, its memory for checkpoints, and what parameter servers cannot do for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Shard

layers = tf.keras.layers
optimizers = tf.keras.optimizers
BATCH = Batch(
    shard=Shard(lease_id=0, epoch=0, start=0, end=4),
    position=4,
    atomic=False,
    last=True,
    size=4,
    features=tf.reshape(tf.range(12.0), [4, 3]),
    labels=tf.ones([4, 1]),
)


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(optimizer: Callable[[], Any], **dense: Any) -> KerasTrainer:
        definition = make_definition(
            loss=lambda labels, predictions: (labels - predictions) ** 2,
            optimizer=optimizer,
            eval_metrics_fn=dict,
        )
        model = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(1, **dense)])
        return KerasTrainer(definition=definition, model=model)

    return make


def test_learning_rate_is_a_number(trainer: Callable[..., KerasTrainer]) -> None:
    assert trainer(lambda: optimizers.Adam(0.25)).learning_rate(1000) == 0.25


def test_learning_rate_follows_a_schedule(trainer: Callable[..., KerasTrainer]) -> None:
    schedule = optimizers.schedules.ExponentialDecay(0.5, decay_steps=10, decay_rate=0.1)
    trained = trainer(lambda: optimizers.SGD(schedule))
    assert trained.learning_rate(0) == pytest.approx(0.5)
    assert trained.learning_rate(20) == pytest.approx(0.005)


def test_learning_rate_that_a_callback_changed(trainer: Callable[..., KerasTrainer]) -> None:
    made = []

    def optimizer() -> Any:
        made.append(optimizers.Adam(0.25))
        return made[-1]

    trained = trainer(optimizer)
    assert trained.learning_rate(1) == 0.25
    made[0].learning_rate = 0.125
    assert trained.learning_rate(2) == 0.125
    assert len(made) == 1


def test_memory_goes_on_where_it_stopped(trainer: Callable[..., KerasTrainer]) -> None:
    def optimizer() -> Any:
        return optimizers.Adam(0.1)

    straight, first, second = trainer(optimizer), trainer(optimizer), trainer(optimizer)
    for one in (straight, first, second):
        one.build(BATCH)
    first.set_parameters(straight.parameters())
    for _ in range(6):
        straight.train(BATCH)
    for _ in range(3):
        first.train(BATCH)
    state = first.optimizer_state()
    second.set_parameters(first.parameters())
    second.set_optimizer_state(state)
    for _ in range(3):
        second.train(BATCH)
    for name, value in straight.parameters().trainable.items():
        np.testing.assert_allclose(second.parameters().trainable[name], value, rtol=1e-5)
    assert list(state) == list(second.optimizer_state())


def test_memory_keeps_the_changed_learning_rate(trainer: Callable[..., KerasTrainer]) -> None:
    made = []

    def optimizer() -> Any:
        made.append(optimizers.SGD(0.25))
        return made[-1]

    first, second = trainer(optimizer), trainer(optimizer)
    first.train(BATCH)
    made[0].learning_rate = 0.125
    second.build(BATCH)
    second.set_optimizer_state(first.optimizer_state())
    assert second.learning_rate(0) == 0.125


def test_memory_of_another_optimizer(trainer: Callable[..., KerasTrainer]) -> None:
    first, second = trainer(lambda: optimizers.Adam()), trainer(lambda: optimizers.SGD())
    first.train(BATCH)
    second.train(BATCH)
    with pytest.raises(UserError, match="The optimizer's state does not fit"):
        second.set_optimizer_state(first.optimizer_state())


def test_settings_for_servers(trainer: Callable[..., KerasTrainer]) -> None:
    config = trainer(lambda: optimizers.Adam(0.1, beta_1=0.5, amsgrad=True, clipnorm=1.0)).optimizer_config()
    assert (config.name, config.flavor) == ("adam", "keras")
    assert dict(config.options) == pytest.approx(
        {"beta_1": 0.5, "beta_2": 0.999, "epsilon": 1e-7, "amsgrad": 1.0}
    )


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (lambda: optimizers.Lion(), "no optimizer 'lion'"),
        (lambda: optimizers.SGD(use_ema=True), "use_ema=True"),
        (lambda: "adam", "returns a str"),
        (lambda: None, "returns a NoneType"),
    ],
)
def test_optimizer_unsupported_by_servers_is_rejected(
    trainer: Callable[..., KerasTrainer], optimizer: Any, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        trainer(optimizer).optimizer_config()
    assert words in str(caught.value)


def test_constraints_are_not_for_servers(trainer: Callable[..., KerasTrainer]) -> None:
    trained = trainer(lambda: optimizers.SGD(0.1), kernel_constraint=tf.keras.constraints.NonNeg())
    with pytest.raises(UserError, match="have constraints: 0:dense/kernel"):
        trained.optimizer_config()
    trained.train(BATCH)
    assert (trained.parameters().trainable["0:dense/kernel"] >= 0).all()


def test_exemptions_from_weight_decay_are_not_for_servers(trainer: Callable[..., KerasTrainer]) -> None:
    def optimizer() -> Any:
        made = optimizers.AdamW(0.1)
        made.exclude_from_weight_decay(var_names=["bias"])
        return made

    with pytest.raises(UserError, match="exempts some parameters from weight decay"):
        trainer(optimizer).optimizer_config()


def test_function_that_fails(trainer: Callable[..., KerasTrainer]) -> None:
    with pytest.raises(UserError, match=r"function optimizer of .* failed: .*division by zero"):
        trainer(lambda: 1 / 0).train(BATCH)
