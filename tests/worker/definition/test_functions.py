"""The functions of a definition are found by their usual names or by those of the flags; what is missing is named."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition, load_definition

MODULE = """
def custom_model(): pass
def feed(dataset, mode, metadata): pass
def loss(labels, predictions): pass
def optimiser(): pass
def eval_metrics_fn(): pass
def my_callbacks(): return ["mine"]
class PredictionOutputsProcessor: pass
not_a_function = 3
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., ModelDefinition]]:
    modules, path = set(sys.modules), list(sys.path)
    (tmp_path / "functions_of").mkdir()
    (tmp_path / "functions_of" / "one.py").write_text(MODULE)

    def make(model: str = "custom_model", **names: str) -> ModelDefinition:
        return load_definition(
            model_zoo=str(tmp_path),
            model_def=f"functions_of.one.{model}",
            names=names,
            model_params={"a": "1"},
        )

    yield make
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path


def test_all_that_are_there(load: Callable[..., ModelDefinition]) -> None:
    definition = load(feed="feed", loss="loss", optimizer="optimiser", callbacks="my_callbacks")
    assert definition.optimizer.__name__ == "optimiser"
    assert definition.callbacks is not None
    assert definition.callbacks() == ["mine"]
    assert definition.prediction_outputs_processor is not None
    assert definition.custom_data_reader is None
    assert definition.model_params == {"a": "1"}


def test_missing_function_that_is_needed(load: Callable[..., ModelDefinition]) -> None:
    with pytest.raises(UserError) as caught:
        load(optimizer="optimizer")
    assert "no function optimizer in" in caught.value.message
    assert "one.py" in caught.value.message
    assert "Did you mean optimiser?" in caught.value.message
    assert "--optimizer" in caught.value.hint


def test_missing_default_function_fails_when_it_is_used(
    load: Callable[..., ModelDefinition],
) -> None:
    definition = load(feed="feed")
    with pytest.raises(UserError, match="no function optimizer in"):
        definition.optimizer()


def test_optional_function_under_a_name_that_does_not_exist(load: Callable[..., ModelDefinition]) -> None:
    with pytest.raises(UserError, match=r"no function your_callbacks in .* Did you mean my_callbacks"):
        load(callbacks="your_callbacks")


def test_missing_model_function(load: Callable[..., ModelDefinition]) -> None:
    with pytest.raises(UserError, match=r"no function costum_model in .* Did you mean custom_model"):
        load("costum_model")


def test_name_of_another_type_than_function_is_rejected(load: Callable[..., ModelDefinition]) -> None:
    with pytest.raises(UserError, match=r"not_a_function in .* is a int, not a function"):
        load(loss="not_a_function")
