"""A server has an optimizer of the user's own from its zoo folder, by the name and the numbers that a worker tells."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elasticdl
from elasticdl.errors import UserError
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import to_config
from elasticdl.ps.embedding.optimizers import CustomOptimizer, make_optimizer
from elasticdl.wire import ps_pb2

LION = """
import numpy as np

import elasticdl


class Lion(elasticdl.Optimizer):
    slots = {"m": 0.0}

    def __init__(self, learning_rate, beta=0.9, flag=False):
        super().__init__(learning_rate)
        self.beta, self.flag = beta, flag

    def update(self, value, gradient, slots, learning_rate, step):
        slots["m"] = self.beta * slots["m"] + gradient
        return value - self.learning_rate * np.sign(slots["m"])


class Broken(elasticdl.Optimizer):
    def update(self, value, gradient, slots, learning_rate, step):
        return value - learning_rate * gradients


class Leaving(elasticdl.Optimizer):
    def __init__(self, learning_rate=0.01):
        raise SystemExit("no licence")

    def update(self, value, gradient, slots, learning_rate, step):
        return value


class Helper:
    pass
"""


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "some_zoo"
    (folder / "lions").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "lions" / "__init__.py").touch()
    (folder / "lions" / "lion.py").write_text(LION)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield str(folder)
    for name in set(sys.modules) - before:
        if name.startswith(("lions", "some_zoo")):
            del sys.modules[name]


def named(name: str, **options: float) -> ps_pb2.OptimizerConfig:
    return ps_pb2.OptimizerConfig(name=name, flavor="python", options=options)


@pytest.mark.parametrize("module", ["lions.lion", "some_zoo.lions.lion"])
def test_a_server_makes_it_of_its_name_and_numbers(zoo: str, module: str) -> None:
    made = make_optimizer(named(f"{module}:Lion", beta=0.5), model_zoo=zoo)
    assert isinstance(made, CustomOptimizer)
    value = np.ones(2, np.float32)
    slots = made.slots("w", value)
    made.apply("w", value, np.array([3.0, -3.0], np.float32), slots, 0.25, 1)
    assert value.tolist() == [0.75, 1.25]
    assert slots["m"].tolist() == [3.0, -3.0]
    made.apply("w", value, np.array([-1.0, 1.0], np.float32), slots, 0.25, 2)
    assert slots["m"].tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("name", "describe_error"),
    [
        ("lions.tiger:Lion", "no module tiger.py"),
        ("tigers.lion:Lion", "no folder tigers"),
        ("lions.lion:Lyon", "Lyon in .*lion.py is no optimizer"),
        ("lions.lion:Helper", "Helper in .*lion.py is no optimizer"),
        ("os:system", "system in .*os.py is no optimizer"),
        ("shelve:Shelf", "no module shelve.py"),
        ("../lion:Lion", "is no name of an optimizer"),
    ],
)
def test_missing_optimizer_is_an_error(zoo: str, name: str, describe_error: str) -> None:
    with pytest.raises(UserError, match=describe_error):
        make_optimizer(named(name), model_zoo=zoo)


def test_unknown_options_are_an_error(zoo: str) -> None:
    with pytest.raises(UserError, match=r"Lion cannot be made with beta_2=0\.5"):
        make_optimizer(named("lions.lion:Lion", beta_2=0.5), model_zoo=zoo)


def test_optimizer_that_raises_system_exit_is_an_error(zoo: str) -> None:
    """No thread of a server may end by it, and leave its callers waiting."""
    with pytest.raises(UserError, match=r"Leaving cannot be made with nothing:(.|\n)*no licence"):
        make_optimizer(named("lions.lion:Leaving"), model_zoo=zoo)


def test_errors_include_the_line_of_the_users_code(zoo: str) -> None:
    made = make_optimizer(named("lions.lion:Broken"), model_zoo=zoo)
    value = np.ones(2, np.float32)
    with pytest.raises(UserError, match="The optimizer Broken failed on dense/kernel") as raised:
        made.apply("dense/kernel", value, value, made.slots("w", value), 0.1, 1)
    assert "lions/lion.py" in str(raised.value)
    assert "name 'gradients' is not defined" in str(raised.value)
    assert "elasticdl/ps" not in str(raised.value)


# -- what a worker tells -------------------------------------------------------------------------------------


class Adagrad(elasticdl.Optimizer):
    def __init__(self, learning_rate: float = 0.01, epsilon: float = 1e-7, **more: float) -> None:
        super().__init__(learning_rate)

    def update(
        self, value: Array, gradient: Array, slots: dict[str, Array], learning_rate: float, step: Any
    ) -> Array:
        return value


def test_a_worker_tells_what_it_was_made_with() -> None:
    config = to_config(Adagrad(0.5))
    assert (config.name, config.flavor, dict(config.options)) == (f"{__name__}:Adagrad", "python", {})
    assert to_config(Adagrad(0.5, 1e-3)).options == {"epsilon": 1e-3}
    assert to_config(Adagrad(epsilon=1, decay=True)).options == {"epsilon": 1.0, "decay": 1.0}


def test_option_that_is_no_number_is_refused() -> None:
    with pytest.raises(UserError, match="made with epsilon='small': it must be a number"):
        to_config(Adagrad(epsilon="small"))  # type: ignore[arg-type]


def test_class_inside_of_a_function_is_refused() -> None:
    class Hidden(Adagrad):
        pass

    with pytest.raises(UserError, match="made inside of a function"):
        to_config(Hidden())
