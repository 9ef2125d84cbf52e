"""What the contract suite needs of a framework: the same small model definitions, written in each."""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import AbstractContextManager
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

# Those with layers that combine rows, and that move their own embeddings to servers.
WITH_BAGS = [name for name in INSTALLED if name != "paddle"]

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

    def seed(self, number: int) -> None:
        """Of all random numbers."""

    def dense(self) -> Any:
        """Two layers, the same values whenever it is called."""

    def normalized(self) -> Any:
        """With moving averages."""

    def table(self, name: str = "rows") -> Any:
        """With a table of 4 numbers a row beside a dense layer."""

    def feed(self, dataset: Any, mode: Any, metadata: Any) -> Any: ...

    def table_feed(self, dataset: Any, mode: Any, metadata: Any) -> Any: ...

    def ids_feed(self, dataset: Any, mode: Any, metadata: Any) -> Any:
        """Features are the ids alone."""

    def columns_feed(self, columns: Any, mode: Any, metadata: Any) -> Any:
        """Of columns `numbers` and `label`, the features of a `dense` model."""

    def records_feed(self, dataset: Any, mode: Any, metadata: Any) -> Any:
        """Like `columns_feed`, of records with the same names."""

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

    def two_tables_of_one_name(self) -> Any:
        """Like a `table` model, with two layers that name their tables alike."""

    def freezable(self, kind: str) -> Any:
        """With a layer `body` (of "parameters", or with a "table") that can be frozen. For `table_feed`."""

    def set_trained(self, model: Any, trained: bool) -> None:
        """Freezes `body`, or trains it again."""

    def embedding(self, width: int, **options: Any) -> Any:
        """The layer of `elasticdl` with a table."""

    def look_up(self, layer: Any, ids: Any, *, training: bool = False) -> Array:
        """The rows of an embedding."""

    def own_rows(self, layer: Any) -> int:
        """How many rows an embedding outside of any model has created."""

    @property
    def Callback(self) -> Any:
        """The base class of callbacks, whose `model` is set."""

    @property
    def RATE_TOLERANCE(self) -> float:
        """What a learning rate may differ by from the same one computed in another way."""

    def early_stopping(self, monitor: str, epochs: int) -> Any:
        """Stops after so many epochs in a row without improvement."""

    def rate_by_epoch(self, function: Any) -> Any:
        """Sets the rate at the begin of an epoch by a function of (epoch) or (epoch, rate)."""

    def plateau(self, patience: int, factor: float = 0.5, least: float = 0.0) -> Any:
        """Reduces the rate when val_loss has not improved for some epochs."""

    def exported_outputs(self, path: Path, features: Any) -> Array:
        """What an exported model predicts for an array or a dict of arrays, by the framework alone."""


class FrameworkWithBags(Framework, Protocol):
    """Keras and PyTorch: embeddings that combine rows, that are moved to servers, and half precision."""

    def bag(self, width: int, combiner: str, **options: Any) -> Any:
        """The layer with a table that combines the rows of a sample."""

    def combine(
        self, layer: Any, bags: list[list[int]], weights: list[list[float]]
    ) -> list[tuple[Array, Array]]:
        """The outputs without and with weights, for every form in which a framework takes bags of ids."""

    def large(self, rows: int, *, changed: bool = False, tied: bool = False) -> Any:
        """A model with a large embedding of the framework's own, called large. `changed`: its numbers are not those
        drawn by its initializer. `tied`: the model uses its numbers in another way, too. For `table_feed`.
        """

    def half_precision(self, variant: str) -> AbstractContextManager[Any]:
        """A model of 3 ids that computes with other types than float32."""

    def cross_entropy(self, labels: Any, predictions: Any) -> Any:
        """Of one class, with logits."""


def load(name: str) -> Framework:
    return cast(Framework, importlib.import_module(f"tests.worker.contract.definitions.{name}_definitions"))


def load_with_bags(name: str) -> FrameworkWithBags:
    return cast(FrameworkWithBags, load(name))
