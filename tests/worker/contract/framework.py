"""What the contract suite needs of a framework: the same small model definitions, written in each."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The module that has the definitions of a framework, and the package that it needs.
PACKAGES = {"keras": "tensorflow", "torch": "torch", "paddle": "paddle"}
# An environment has some of them. All of them is what `make test` installs. The folder `paddle` of the repository is
# found too, but has no module.
INSTALLED = [
    name
    for name, package in PACKAGES.items()
    if (spec := importlib.util.find_spec(package)) is not None and spec.origin is not None
]

# Ids of any size, negative ones among them.
IDS = np.random.default_rng(0).integers(-(2**62), 2**62, 20)
# An id whose sample has numbers that are not finite.
BROKEN = int(IDS[0])
# Optimizers of all frameworks, as tests call them.
OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam", "adamw", "rmsprop", "adadelta", "adamax", "clipped")


class Framework(Protocol):
    """A module of `definitions/`.

    Records are Examples with 4 `numbers`, 3 `ids` and a `label`. `dense` models are given the numbers, `table` models
    a dict of numbers and ids; all of them predict one number for a sample.
    """

    def dense(self) -> Any:
        """Two layers, the same values whenever it is called."""

    def normalized(self) -> Any:
        """With moving averages."""

    def table(self) -> Any:
        """With a table of 4 numbers a row, called rows, beside a dense layer."""

    def feed(self, dataset: Any, mode: Any, metadata: Any) -> Any: ...

    def table_feed(self, dataset: Any, mode: Any, metadata: Any) -> Any: ...

    def filtering_feed(self, dataset: Any, mode: Any, metadata: Any) -> Any:
        """Lets samples with a positive label pass."""

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Squares."""

    def misfit(self, labels: Any, predictions: Any) -> Any:
        """A loss that fits no shapes."""

    def factor(self, present: list[float]) -> Any:
        """The number in the list, whenever a step is computed."""

    def optimizer(self, name: str) -> Any:
        """The function of a definition that makes one of OPTIMIZERS; or "halving": SGD whose rate of 0.1 is halved
        every 3 steps; or "own adagrad": that of the framework, written in NumPy.
        """

    def eval_metrics_fn(self) -> Any:
        """Mean squared error, as mse."""

    def callback(self, events: list[str], stop_after: int) -> Any:
        """A callback that writes events down and ends the training after an epoch."""

    def exported_outputs(self, path: Path, numbers: Array) -> Array:
        """What an exported dense model predicts, by the framework alone."""


def load(name: str) -> Framework:
    return cast(Framework, importlib.import_module(f"tests.worker.contract.definitions.{name}_definitions"))
