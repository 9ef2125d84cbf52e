"""Every framework: evaluation adds up, predictions have names, checkpoints go on, exports agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.example import decode_example
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, SavedFile, write_manifest
from elasticdl.worker.definition import ProgramError
from elasticdl.worker.model.model_store import LocalModel, restore, save
from elasticdl.worker.trainer import Batch, MetricStates, Trainer
from tests.worker.contract.framework import Framework

Batches = Callable[..., list[Batch]]


def finish(folder: Path, *files: SavedFile) -> str:
    write_manifest(folder, Manifest(step=1, files=files, attributes={}), None)
    return str(folder)


def test_states_of_an_evaluation_add_up(trainer: Callable[..., Trainer], batches: Batches) -> None:
    made = trainer()
    given = batches(made, mode=Mode.EVALUATION)
    made.build(given[0])
    parts = []
    for batch in given:
        made.evaluate(batch)
        parts.append(made.take_metric_states())
    for batch in given:
        made.evaluate(batch)
    whole = made.metric_values(made.take_metric_states())
    added = [
        MetricStates(
            name=states[0].name,
            arrays=tuple(
                sum(arrays[1:], arrays[0]) for arrays in zip(*(one.arrays for one in states), strict=True)
            ),
        )
        for states in zip(*parts, strict=True)
    ]
    assert made.metric_values(added) == pytest.approx(whole, rel=1e-6)
    assert whole["mse"] == pytest.approx(whole["loss"], rel=1e-5)


class Unready:
    def __init__(self) -> None:
        raise OSError("out of paper")


class Failing:
    def process(self, predictions: Any, worker_id: int) -> None:
        raise OSError(f"out of paper {worker_id}")


def test_failing_outputs_processor_is_an_error_in_the_users_code(trainer: Callable[..., Trainer]) -> None:
    with pytest.raises(UserError, match="the outputs processor failed: OSError: out of paper") as unready:
        trainer(prediction_outputs_processor=Unready).output_processor()
    process = trainer(prediction_outputs_processor=Failing).output_processor()
    assert process is not None
    with pytest.raises(
        ProgramError, match="The outputs processor failed: OSError: out of paper 3"
    ) as failing:
        process({}, 3)
    assert "in __init__" in str(unready.value)
    assert "in process" in str(failing.value)


def test_predictions_have_a_row_for_each_sample(trainer: Callable[..., Trainer], batches: Batches) -> None:
    made = trainer("table")
    given = batches(made, mode=Mode.PREDICTION)
    made.build(given[0])
    outputs = [made.predict(batch) for batch in given]
    assert {tuple(output) for output in outputs} == {("output",)}
    assert np.concatenate([output["output"] for output in outputs]).shape == (96, 1)


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "adagrad", "halving"])
def test_training_goes_on_from_a_checkpoint_to_the_bit(
    trainer: Callable[..., Trainer], batches: Batches, tmp_path: Path, optimizer: str
) -> None:
    half = LocalModel(made := trainer("table", optimizer), restore_from="", first_step=0)
    given = batches(made)
    half.prepare(given[0])
    for batch in given[:4]:
        half.train(batch, position=0, batches=1)
    place = finish(tmp_path / "version-4", *half.save(tmp_path / "version-4"))
    expected = [half.train(batch, position=0, batches=1) for batch in given * 2]
    second = LocalModel(trainer("table", optimizer), restore_from=place, first_step=4)
    second.prepare(given[0])
    assert [second.train(batch, position=0, batches=1) for batch in given * 2] == expected


def test_checkpoint_of_another_optimizer_is_refused(
    trainer: Callable[..., Trainer], batches: Batches
) -> None:
    adam, sgd = trainer(optimizer="adam"), trainer(optimizer="momentum")
    first, *_ = batches(adam)
    for made in (adam, sgd):
        made.build(first)
        made.train(first)
    with pytest.raises(UserError, match=r"Adam|does not fit this model"):
        sgd.set_optimizer_state(adam.optimizer_state())


def test_values_for_evaluation_come_with_their_tables(
    trainer: Callable[..., Trainer], batches: Batches, tmp_path: Path
) -> None:
    model = LocalModel(made := trainer("table", "adagrad"), restore_from="", first_step=0)
    first, *_ = given = batches(made)
    model.prepare(first)
    for batch in given:
        model.train(batch, position=0, batches=1)
    place = finish(tmp_path / "saved", save(made, tmp_path / "saved", with_optimizer=False))
    other = trainer("table", "adagrad")
    other.build(first)
    restore(other, place)
    np.testing.assert_array_equal(other.predict(first)["output"], made.predict(first)["output"])


def test_an_exported_model_gives_the_same_outputs(
    trainer: Callable[..., Trainer],
    batches: Batches,
    framework: Framework,
    records: list[bytes],
    tmp_path: Path,
) -> None:
    made = trainer("normalized")
    given = batches(made)
    for batch in given:
        made.train(batch)
    lines = made.export(tmp_path / "export", given[0])
    assert not any(line.startswith("no ") for line in lines), lines
    numbers = np.stack([decode_example(record)["numbers"] for record in records])
    expected = np.concatenate([made.predict(batch)["output"] for batch in given])
    np.testing.assert_allclose(
        framework.exported_outputs(tmp_path / "export", numbers), expected, rtol=1e-4, atol=1e-5
    )
    # It trains on behind its export.
    assert np.isfinite(made.train(given[0]))


def test_a_model_with_a_table_is_exported_and_trains_on(
    trainer: Callable[..., Trainer], batches: Batches, tmp_path: Path
) -> None:
    model = LocalModel(made := trainer("table", "adagrad"), restore_from="", first_step=0)
    given = batches(made)
    model.prepare(given[0])
    before = model.train(given[0], position=0, batches=1)
    lines = made.export(tmp_path / "export", given[0])
    # A lookup cannot be scripted, which is said.
    assert not any(line.startswith("no ") and "TorchScript" not in line for line in lines), lines
    assert model.train(given[0], position=0, batches=1) < before


@pytest.mark.parametrize("action", ["train", "gradients", "evaluate"])
def test_labels_that_do_not_fit_the_loss_are_described(
    trainer: Callable[..., Trainer], batches: Batches, framework: Framework, action: str
) -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        return framework.misfit(labels, predictions)

    made = trainer(loss=loss)
    first, *_ = batches(made)
    made.build(first)
    # TensorFlow finds out when it computes, and says so in its own words.
    described = (
        r"labels float32\[16, 1\] and predictions float32\[16, 1\]|In\[0\]: \[16,1\], In\[1\]: \[16,1\]"
    )
    with pytest.raises(UserError, match=described):
        getattr(made, action)(first)


@pytest.mark.parametrize("action", ["train", "gradients"])
def test_loss_that_ignores_predictions_is_refused(
    trainer: Callable[..., Trainer], batches: Batches, action: str
) -> None:
    made = trainer(
        loss=lambda labels, predictions: (labels**2).mean() if hasattr(labels, "mean") else labels**2
    )
    first, *_ = batches(made)
    made.build(first)
    with pytest.raises(UserError, match=r"no parameter has a gradient|does not depend on the parameters"):
        getattr(made, action)(first)


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, TypeError, IndexError, KeyError])
def test_error_raised_in_the_loss_is_shown_with_its_line(
    trainer: Callable[..., Trainer], batches: Batches, framework: Framework, kind: type[Exception]
) -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        raise kind("size of the moon is unknown")

    made = trainer(loss=loss)
    first, *_ = batches(made)
    with pytest.raises((UserError, KeyError)) as raised:
        made.train(first)
    if kind is KeyError and not isinstance(raised.value, UserError):
        # The worker reports it with its traceback.
        return
    text = str(raised.value)
    assert "size of the moon is unknown" in text
    assert 'raise kind("size of the moon is unknown")' in text
    assert "test_around_training.py" in text
    assert "labels" not in text.partition("\n")[0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_loss_ends_a_local_training(
    trainer: Callable[..., Trainer], batches: Batches, value: float
) -> None:
    made = trainer()
    model = LocalModel(made, restore_from="", first_step=0)
    first, second, *_ = batches(made)
    model.prepare(first)
    model.train(first, position=8, batches=1)
    values = made.parameters()
    next(iter(values.trainable.values()))[...] = value
    made.set_parameters(values)
    with pytest.raises(
        UserError, match=r"The loss of step 2 is (nan|inf), in the batch that ends at sample 16"
    ):
        model.train(second, position=16, batches=2)


def test_non_finite_parameters_are_not_saved(
    trainer: Callable[..., Trainer], batches: Batches, tmp_path: Path
) -> None:
    made = trainer()
    made.build(batches(made)[0])
    values = made.parameters()
    name, array = next(iter(values.trainable.items()))
    array[...] = np.nan
    made.set_parameters(values)
    with pytest.raises(UserError, match=f"The parameter {re.escape(name)} is not finite"):
        save(made, tmp_path / "new", with_optimizer=True)
    assert not (tmp_path / "new").exists()


def test_nan_in_moving_averages_is_not_saved(
    trainer: Callable[..., Trainer], batches: Batches, tmp_path: Path
) -> None:
    made = trainer("normalized")
    made.build(batches(made)[0])
    values = made.parameters()
    name, array = next((name, array) for name, array in values.state.items() if array.dtype.kind == "f")
    array[...] = np.inf
    made.set_parameters(values)
    save(made, tmp_path / "masked", with_optimizer=True)
    array[...] = np.nan
    made.set_parameters(values)
    with pytest.raises(UserError, match=f"{re.escape(name)}, which is not trained, has a NaN"):
        save(made, tmp_path / "new", with_optimizer=True)
    assert not (tmp_path / "new").exists()


def copied(batch: Any) -> Any:
    """A copy of the arrays, so that they can be compared with later ones."""
    return {name: np.array(array) for name, array in batch.items()}


@pytest.mark.parametrize("kind", ["dense", "normalized", "table"])
def test_allowed_non_finite_batch_changes_nothing_locally(
    trainer: Callable[..., Trainer], batches: Batches, framework: Any, kind: str
) -> None:
    factor = [1.0]

    def loss(labels: Any, predictions: Any) -> Any:
        return framework.loss(labels, predictions) * framework.factor(factor)

    made = trainer(kind, "adam", loss=loss)
    model = LocalModel(made, restore_from="", first_step=0, max_bad_gradients=1)
    first, second, third, fourth, *_ = batches(made)
    model.prepare(first)
    assert np.isfinite(model.train(first, position=8, batches=1))
    before = made.parameters()
    trainable, state = copied(before.trainable), copied(before.state)
    slots = copied(made.optimizer_state())
    factor[0] = float("nan")
    assert np.isnan(model.train(second, position=16, batches=2))
    after = made.parameters()
    for old, new in ((trainable, after.trainable), (state, after.state), (slots, made.optimizer_state())):
        assert old.keys() == new.keys()
        assert all(np.array_equal(old[name], new[name]) for name in old)
    assert (model.skipped_batches, model.step) == (1, 1)
    factor[0] = 1.0
    assert np.isfinite(model.train(third, position=24, batches=3))
    factor[0] = float("inf")
    with pytest.raises(UserError, match="1 such batches were skipped before"):
        model.train(fourth, position=32, batches=4)


def test_skipped_batches_are_in_checkpoints(
    trainer: Callable[..., Trainer], batches: Batches, tmp_path: Path
) -> None:
    model = LocalModel(made := trainer(), restore_from="", first_step=0, max_bad_gradients=3)
    model.prepare(batches(made)[0])
    model.skipped_batches = 2
    place = finish(tmp_path / "checkpoint", *model.save(tmp_path / "checkpoint"))
    later = LocalModel(again := trainer(), restore_from=place, first_step=0, max_bad_gradients=3)
    later.prepare(batches(again)[0])
    assert later.skipped_batches == 2
