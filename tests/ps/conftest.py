"""Shared by the tests of parameter servers: long runs of an optimizer, with gradients made up once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from elasticdl.ps.optimizers import make_optimizer
from elasticdl.ps.tensors import Array
from elasticdl.wire import ps_pb2

STEPS = 300
# A matrix of more than one block, a vector, a scalar.
SHAPES: dict[str, tuple[int, ...]] = {"kernel": (19, 11), "bias": (5,), "scale": ()}


class Run:
    """The same starting values, gradients and learning rates for both sides of a comparison."""

    def __init__(self) -> None:
        chance = np.random.default_rng(7)
        self.initial = {
            name: np.asarray(chance.normal(size=shape), np.float32) for name, shape in SHAPES.items()
        }
        self._seed = 11

    def steps(self) -> Iterator[tuple[int, float, dict[str, Array]]]:
        """(step from 1 on, learning rate, gradients); sizes of gradients vary by orders of magnitude."""
        chance = np.random.default_rng(self._seed)
        for step in range(1, STEPS + 1):
            size = 10.0 ** chance.uniform(-3, 1)
            gradients = {
                name: np.asarray(chance.normal(size=shape) * size, np.float32)
                for name, shape in SHAPES.items()
            }
            yield step, 0.01 / (1 + step / 200), gradients

    def ours(self, name: str, flavor: str, options: Mapping[str, float]) -> dict[str, Array]:
        optimizer = make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor=flavor, options=options))
        values = {parameter: value.copy() for parameter, value in self.initial.items()}
        slots = {parameter: optimizer.slots(parameter, value) for parameter, value in values.items()}
        for step, learning_rate, gradients in self.steps():
            for parameter, gradient in gradients.items():
                optimizer.apply(parameter, values[parameter], gradient, slots[parameter], learning_rate, step)
        return values


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    # Small enough that the matrix takes several blocks and the last one is not full.
    monkeypatch.setattr("elasticdl.ps.update.BLOCK", 64)
    return Run()


@pytest.fixture
def assert_same_values() -> Callable[[Mapping[str, Array], Mapping[str, Array]], None]:
    def check(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> None:
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert ours[name].dtype == theirs[name].dtype
            # Hundreds of steps, each rounded a little differently: some units in the last of seven digits.
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=2e-6, err_msg=name)

    return check
