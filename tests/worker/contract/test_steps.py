"""Every framework: steps here, by the optimizers of servers, and on real servers are the same; values come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.trainer import Batch, Parameters, Trainer
from tests.worker.contract.framework import OPTIMIZERS

Batches = Callable[..., list[Batch]]
# Enough for hundreds of steps.
ROUNDS = 40


def test_training_learns(trainer: Callable[..., Trainer], batches: Batches) -> None:
    model = LocalModel(made := trainer("table", "adagrad"), restore_from="", first_step=0)
    given = batches(made)
    model.prepare(given[0])
    losses = [model.train(batch, position=0, batches=1) for _ in range(ROUNDS) for batch in given]
    assert np.mean(losses[-6:]) < 0.1 * np.mean(losses[:6])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_servers_do_what_the_optimizer_does_over_hundreds_of_steps(
    trainer: Callable[..., Trainer], batches: Batches, optimizer: str
) -> None:
    here, served = trainer(optimizer=optimizer), trainer(optimizer=optimizer)
    given = batches(here)
    served.build(given[0])
    server = make_optimizer(served.optimizer_config())
    values = served.parameters().trainable
    slots = {name: server.slots(name, value) for name, value in values.items()}
    step = 0
    for _ in range(ROUNDS):
        for batch in given:
            step += 1
            here.train(batch)
            _, gradients = served.gradients(batch)
            rate = served.learning_rate(step - 1)
            for name, gradient in gradients.items():
                server.apply(name, values[name], gradient, slots[name], rate, step)
            served.set_parameters(Parameters(trainable=values))
    # Two computations of the same: what rounding makes of them grows with every step.
    for name, value in here.parameters().trainable.items():
        np.testing.assert_allclose(values[name], value, rtol=2e-3, atol=2e-4, err_msg=name)


def test_gradients_change_nothing_and_stay_what_they_are(
    trainer: Callable[..., Trainer], batches: Batches
) -> None:
    made = trainer()
    first, second, *_ = batches(made)
    made.build(first)
    before = made.parameters().trainable
    _, gradients = made.gradients(first)
    kept = {name: value.copy() for name, value in gradients.items()}
    made.gradients(second)
    assert gradients.keys() == before.keys()
    for name, value in made.parameters().trainable.items():
        np.testing.assert_array_equal(value, before[name])
        np.testing.assert_array_equal(gradients[name], kept[name])


def test_values_are_copies_and_come_back(trainer: Callable[..., Trainer], batches: Batches) -> None:
    made = trainer("normalized")
    first, second, *_ = batches(made)
    made.build(first)
    made.train(first)
    kept = made.parameters()
    expected = made.predict(second)["output"]
    made.train(second)
    assert not np.array_equal(made.predict(second)["output"], expected)
    made.set_parameters(kept)
    np.testing.assert_array_equal(made.predict(second)["output"], expected)


def test_moving_averages_are_state_and_change(trainer: Callable[..., Trainer], batches: Batches) -> None:
    made = trainer("normalized")
    first, *_ = batches(made)
    made.build(first)
    before = made.state()
    assert not before.keys() & made.parameters().trainable.keys()
    made.gradients(first)
    changed = [name for name, value in made.state().items() if not np.array_equal(value, before[name])]
    assert len(changed) >= 2


def test_values_of_another_model_are_named(trainer: Callable[..., Trainer], batches: Batches) -> None:
    made = trainer()
    made.build(batches(made)[0])
    values = made.parameters()
    name, value = next(iter(values.trainable.items()))
    values.trainable[name] = np.zeros((*value.shape[:-1], 77), np.float32)
    values.trainable["extra"] = np.zeros(1, np.float32)
    missing = [other for other in values.trainable if other not in (name, "extra")][-1]
    del values.trainable[missing]
    with pytest.raises(UserError) as caught:
        made.set_parameters(values)
    assert "extra is not in this model" in str(caught.value)
    assert f"{missing} is missing" in str(caught.value)
    shapes = f"{(*value.shape[:-1], 77)}, this model's has {value.shape}"
    assert f"{name} has shape {shapes}" in str(caught.value)


def test_rates_of_a_schedule_at_any_step(trainer: Callable[..., Trainer], batches: Batches) -> None:
    made = trainer(optimizer="halving")
    made.build(batches(made)[0])
    rates = [made.learning_rate(step) for step in (0, 7, 2, 3, 12, 4)]
    assert rates == pytest.approx([0.1, 0.025, 0.1, 0.05, 0.1 / 16, 0.05])


# -- on real servers -----------------------------------------------------------------------------------------


@pytest.fixture
def serve(table_servers: tuple[list[Any], list[str]]) -> Iterator[Callable[..., ServedModel]]:
    made: list[ServedModel] = []

    def make(trainer: Trainer, *, tolerant: bool = False, **options: Any) -> ServedModel:
        client = ParameterClient(
            table_servers[1], "token", "worker-0", generation=1, patience_seconds=60, tolerant=tolerant
        )
        made.append(ServedModel(trainer, client, **{"pull_every": 1, "restore_from": "", **options}))
        return made[-1]

    yield make
    for model in made:
        model.close()


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "clipped"])
def test_served_training_is_that_of_one_worker(
    trainer: Callable[..., Trainer], batches: Batches, serve: Any, optimizer: str
) -> None:
    alone, served = trainer("table", optimizer), trainer("table", optimizer)
    given = batches(alone) * 5
    models = [LocalModel(alone, restore_from="", first_step=0), serve(served)]
    losses = []
    for model in models:
        model.prepare(given[0])
        losses.append([model.train(batch, position=0, batches=1) for batch in given])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3, atol=1e-5)
    assert models[1].step == len(given)


def test_prefetched_rows_train_as_well(trainer: Callable[..., Trainer], batches: Batches, serve: Any) -> None:
    made = trainer("table", "adagrad")
    model = serve(made, asynchronous=True)
    given = batches(made) * 10
    model.prepare(given[0])
    losses = [
        model.train(batch, position=0, batches=1, upcoming=upcoming)
        for batch, upcoming in zip(given, [*given[1:], None], strict=True)
    ]
    model.settle()
    assert model.is_asynchronous
    assert np.mean(losses[-6:]) < 0.3 * np.mean(losses[:6])


def test_gradients_that_are_not_finite_are_refused(
    trainer: Callable[..., Trainer], batches: Batches, serve: Any, framework: Any
) -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        return framework.loss(labels, predictions) * float("nan")

    made = trainer("table", "adagrad", loss=loss)
    model = serve(made)
    (first, *_) = batches(made)
    model.prepare(first)
    with pytest.raises(UserError, match="not finite"):
        model.train(first, position=0, batches=1)


def test_gradients_that_are_not_finite_are_passed_over_where_allowed(
    trainer: Callable[..., Trainer], batches: Batches, serve: Any, framework: Any
) -> None:
    factor = [1.0]

    def loss(labels: Any, predictions: Any) -> Any:
        return framework.loss(labels, predictions) * framework.factor(factor)

    made = trainer("table", "sgd", loss=loss)
    model = serve(made, tolerant=True)
    first, second, *_ = batches(made)
    model.prepare(first)
    before = made.parameters().trainable
    factor[0] = float("nan")
    model.train(first, position=0, batches=1)
    factor[0] = 1.0
    loss_after = model.train(second, position=0, batches=1)
    assert np.isfinite(loss_after)
    assert all(np.isfinite(value).all() for value in made.parameters().trainable.values())
    assert before.keys() == made.parameters().trainable.keys()
