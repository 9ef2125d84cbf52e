"""What the model function returns decides which trainer it gets, without importing any other framework."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.trainer_factory import framework_of, make_trainer


class Module:
    """Stands for torch.nn.Module: only its name and its place are looked at."""

    __module__ = "torch.nn.modules.module"


class Network(Module):
    pass


class Model:
    __module__ = "keras.src.models.model"


@pytest.mark.parametrize(
    ("value", "expected"), [(Network(), "torch"), (Model(), "keras"), ({}, None), (None, None)]
)
def test_by_the_class_it_is_made_of(value: object, expected: str | None) -> None:
    assert framework_of(value) == expected


def test_anything_else_is_refused(make_definition: Callable[..., ModelDefinition]) -> None:
    with pytest.raises(UserError, match=r"returned a dict, not a model"):
        make_trainer(make_definition(model=dict))


def test_model_function_that_fails(make_definition: Callable[..., ModelDefinition]) -> None:
    def model() -> None:
        raise KeyError("width")

    with pytest.raises(UserError) as caught:
        make_trainer(make_definition(model=model))
    assert "KeyError: 'width'" in str(caught.value)
    assert "test_frameworks.py" in str(caught.value)


def test_no_framework_is_imported_for_it() -> None:
    program = (
        "import sys, elasticdl.worker.trainer_factory, elasticdl.worker.definition;"
        "print(sorted({'tensorflow', 'keras', 'torch'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
