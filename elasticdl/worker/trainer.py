"""The interface of a framework to the worker's loop.

The loop (`training_loop.py`) knows shards, leases, parameter servers and the master; a trainer knows one framework.
There is one trainer a framework, in the folder that is named after it: `keras/`, `torch/`, `paddle/`. Arrays cross
the border as NumPy; names of parameters are those of the framework and stable from one process to the next.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.reader import BadRange, Reader
from elasticdl.jobs.mode import Mode
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.wire import ps_pb2
from elasticdl.worker.table_layers import Tables

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A leased range of samples, as the loop hands it to a trainer's `batches`."""

    lease_id: int
    epoch: int
    start: int
    end: int
    # Buckets of the parameter servers that have these samples already, packed.
    applied: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some samples of one shard, ready to compute with. A batch never crosses shards."""

    shard: Shard
    # The samples of the shard before this index are done once this batch and all before it are. Equal to
    # shard.end on the last batch of the shard, and, where `atomic`, meaningless on the others.
    position: int
    # The feed gives no order inside the shard (it shuffles, filters or repeats), so a part of the shard
    # cannot be accounted for: all of it or nothing.
    atomic: bool
    # The last batch of its shard. A shard whose samples were all filtered out or all bad still ends with
    # one: an empty batch with size 0, that is counted and not computed.
    last: bool
    size: int
    features: Any = None
    labels: Any = None
    # Samples of the shard that could not be read, reported with the batch that comes after them.
    bad: tuple[BadRange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MetricStates:
    """The state of one metric over some samples; states of disjoint samples add up element by element."""

    name: str
    arrays: tuple[Array, ...]


@dataclass(kw_only=True)
class Parameters:
    """A model's values: what gradients are for, and the rest (moving averages and the like)."""

    trainable: dict[str, Array] = field(default_factory=dict)
    state: dict[str, Array] = field(default_factory=dict)


class Trainer(abc.ABC):
    """A model of a framework in this process. Not thread-safe, except for `batches`."""

    # Remarks on the built model for the user, a line each; the same in all workers.
    remarks: Sequence[str] = ()

    # -- data ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def batches(
        self, reader: Reader, shards: Iterable[Shard], *, mode: Mode, batch_size: int, max_bad_records: int
    ) -> Iterator[Batch]:
        """Runs the definition's feed over the shards and yields batches.

        Reads ahead by a few batches, in the background; `shards` may block, and is consumed from another
        thread. What the feed does to the order is found out here (see `Batch.atomic`). With max_bad_records
        == 0 corrupt data raises `BadRecords`, else it is skipped and reported in `Batch.bad`: the master
        counts. Closing the iterator stops the reading.
        """

    # -- computing -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def build(self, batch: Batch) -> None:
        """Makes sure all parameters exist (some models create them on their first batch). Safe to repeat."""

    @abc.abstractmethod
    def train(self, batch: Batch, *, guarded: bool = False) -> float:
        """Makes a step with the framework's own optimizer, and of rows kept here with an equivalent one. Returns the
        loss. With `guarded`, a batch with a non-finite loss or gradient changes no parameter, and its loss is NaN.
        """

    @abc.abstractmethod
    def gradients(self, batch: Batch) -> tuple[float, dict[str, Array]]:
        """The loss, and the gradient of every trainable parameter that it depends on, clipped as the optimizer says;
        no update. Those of rows of tables, clipped as well, are then to be had by `row_gradients`.
        """

    @abc.abstractmethod
    def row_gradients(self) -> dict[str, RowGradients]:
        """Returns, by table, the row gradients of the last call of `gradients`, which the caller may keep."""

    @abc.abstractmethod
    def features(self, batch: Batch) -> list[Array]:
        """The numbers among the features of a batch as arrays, always in the same order; of ragged and sparse ones
        their values behind each other. Called from another thread than the rest.
        """

    @abc.abstractmethod
    def evaluate(self, batch: Batch) -> None:
        """Adds a batch to the metrics' states."""

    @abc.abstractmethod
    def take_metric_states(self) -> list[MetricStates]:
        """Returns the states since the last call, and resets them. The loss over the samples is one of the metrics."""

    @abc.abstractmethod
    def metric_values(self, states: list[MetricStates]) -> dict[str, float]:
        """Returns the values of added-up states."""

    @abc.abstractmethod
    def predict(self, batch: Batch) -> dict[str, Array]:
        """The outputs for a batch by name ("output" where the model has just one); first axis: samples."""

    # -- parameters ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def parameters(self) -> Parameters:
        """Copies of the current values."""

    @property
    @abc.abstractmethod
    def tables(self) -> Tables:
        """The embedding layers of the built model whose rows are in tables. Not among the parameters."""

    @abc.abstractmethod
    def parameter_of_table(self, table: str) -> str:
        """The parameter that an embedding is where it is no table, by the name it has as one; "" if there is none."""

    @abc.abstractmethod
    def state(self) -> dict[str, Array]:
        """Returns the values that have no gradients: they go with every push."""

    @abc.abstractmethod
    def set_parameters(self, parameters: Parameters) -> None:
        """Raises `UserError` that names what differs if these are of another model."""

    @abc.abstractmethod
    def optimizer_config(self) -> ps_pb2.OptimizerConfig:
        """The definition's optimizer for the parameter servers; `UserError` if they do not have it."""

    @abc.abstractmethod
    def learning_rate(self, step: int) -> float:
        """Returns the rate of the given global step, after callbacks and schedules."""

    @abc.abstractmethod
    def optimizer_state(self) -> dict[str, Array]:
        """The framework's own optimizer's slots, for checkpoints where `train` is used."""

    @abc.abstractmethod
    def set_optimizer_state(self, state: Mapping[str, Array]) -> None: ...

    # -- around it -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def callbacks(self, *, leader: bool, epochs: int, resumed: bool = False) -> CallbackRunner:
        """The definition's callbacks, ready for events. Without `leader` those that write files are
        left out. `resumed`: others have trained before, so existing files are kept.
        """

    @abc.abstractmethod
    def export(self, path: Path, example: Batch) -> list[str]:
        """Writes the model with its present values for use elsewhere. Returns one line a thing written."""

    @abc.abstractmethod
    def output_processor(self) -> Callable[[Any, int], None] | None:
        """The definition's PredictionOutputsProcessor().process, if it has one."""


@dataclass(frozen=True, kw_only=True)
class EndedEpoch:
    """An epoch that is over, and what callbacks hear of it."""

    epoch: int
    logs: dict[str, float]


class CallbackRunner(abc.ABC):
    """The events of a model definition's callbacks, in the order a Keras user expects them."""

    @abc.abstractmethod
    def fire(self, event: str, *args: Any) -> None:
        """E.g. fire("on_epoch_end", epoch, logs). Callbacks without that event are passed over."""

    @abc.abstractmethod
    def catch_up(self, past: Sequence[EndedEpoch], epoch: int) -> None:
        """Tells of the epochs that were over before these callbacks began, and of the beginning of `epoch`, so that
        they go on as if they had been there from the start: patience, best values, and the learning rate, whatever
        rate there is at the moment. What writes files writes nothing of the past.
        """

    @property
    @abc.abstractmethod
    def stop_training(self) -> bool:
        """A callback asked for the end of the training."""

    @property
    @abc.abstractmethod
    def empty(self) -> bool: ...


def check_same_names(expected: Mapping[str, Array], given: Mapping[str, Array]) -> list[str]:
    """Lists the differences between two sets of parameters, one line each; none if they fit."""
    problems = [f"{name} is missing" for name in expected if name not in given]
    problems += [f"{name} is not in this model" for name in given if name not in expected]
    problems += [
        f"{name} has shape {tuple(given[name].shape)}, this model's has {tuple(np.shape(value))}"
        for name, value in expected.items()
        if name in given and tuple(given[name].shape) != tuple(np.shape(value))
    ]
    return problems
