"""The metrics of an evaluation: whatever a definition's `eval_metrics_fn` gives, as states that add up.

Evaluation is done in parts by several workers, so a metric is of use only if the sum of its states over the parts
is its state over the whole. Keras's own are like that. A metric class of the user's is unknown; it is tried
on the halves of the first batch, and refused if they do not add up to what the whole batch gives.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.worker.keras.errors import definition_error, describe
from elasticdl.worker.trainer import MetricStates

Array = NDArray[Any]

LOSS = "loss"
_FRAMEWORKS = ("keras", "tf_keras", "tensorflow")


class EvaluationMetrics:
    """All metrics of a definition, by name; those of one output of several as OUTPUT_METRIC."""

    def __init__(self, make: Callable[[], Any], *, output_names: Sequence[str], name: str) -> None:
        try:
            given = make()
        except UserError:
            raise
        except Exception as error:
            raise definition_error(f"The function eval_metrics_fn of {name} failed", error) from error
        if not isinstance(given, Mapping):
            raise UserError(
                f"The function eval_metrics_fn of {name} returns a {type(given).__name__}.",
                hint='It must return a dict, such as {"accuracy": tf.keras.metrics.BinaryAccuracy()}.',
            )
        self._output_names = list(output_names)
        self._metrics: dict[str, _Metric] = {}
        for key, value in given.items():
            if isinstance(value, Mapping):
                for inner, metric in value.items():
                    self._add(f"{key}_{inner}", metric, str(key), name)
            else:
                self._add(str(key), value, None, name)
        self._loss, self._count = 0.0, 0
        self.prepared = False

    def _add(self, name: str, metric: Any, output: str | None, definition: str) -> None:
        if name == LOSS:
            raise UserError(
                f"A metric of {definition} is called {LOSS}.",
                hint="The loss is evaluated in any case: leave it out.",
            )
        self._metrics[name] = _adapt(name, metric, output, definition)

    def prepare(self, labels: Any, predictions: Any) -> None:
        """Prepares metrics with the first batch: some have no state before, some must prove that theirs adds up."""
        for metric in self._metrics.values():
            metric.prepare(*self._pick(metric, labels, predictions))
        self.prepared = _size(predictions) > 1

    def update_in_graph(self, labels: Any, predictions: Any) -> None:
        for metric in self._metrics.values():
            if metric.in_graph:
                metric.update(*self._pick(metric, labels, predictions))

    def update(self, labels: Any, predictions: Any, *, loss: float, size: int) -> None:
        self._loss += loss * size
        self._count += size
        for metric in self._metrics.values():
            if not metric.in_graph:
                metric.update(*self._pick(metric, labels, predictions))

    def take(self) -> list[MetricStates]:
        if not self._count:
            return []
        states = [MetricStates(name=LOSS, arrays=(np.array(self._loss), np.array(self._count)))]
        for name, metric in self._metrics.items():
            states.append(MetricStates(name=name, arrays=metric.states()))
            metric.reset()
        self._loss, self._count = 0.0, 0
        return states

    @property
    def directions(self) -> dict[str, str]:
        """ "max" or "min" for those that say which is better."""
        return {name: metric.direction for name, metric in self._metrics.items() if metric.direction}

    def values(self, states: Sequence[MetricStates]) -> dict[str, float]:
        """Does not touch what is being added up here."""
        values: dict[str, float] = {}
        for state in states:
            if state.name == LOSS:
                total, count = state.arrays
                values[LOSS] = float(total) / float(count) if count else float("nan")
                continue
            metric = self._metrics[state.name]
            present = metric.states()
            metric.load(state.arrays)
            values.update(_numbers(state.name, metric.result()))
            metric.load(present)
        return values

    def _pick(self, metric: _Metric, labels: Any, predictions: Any) -> tuple[Any, Any]:
        if metric.output is None:
            return labels, predictions
        return self._of_output(labels, metric, "labels"), self._of_output(predictions, metric, "predictions")

    def _of_output(self, structure: Any, metric: _Metric, what: str) -> Any:
        if isinstance(structure, Mapping) and metric.output in structure:
            return structure[metric.output]
        if isinstance(structure, tuple | list) and metric.output in self._output_names:
            index = self._output_names.index(metric.output)
            if index < len(structure):
                return structure[index]
        raise UserError(
            f"The metric {metric.name} is for the output {metric.output}, which {what} do not have."
        )


class _Metric(abc.ABC):
    """A metric. `in_graph`: it is updated inside the graph that makes the predictions."""

    in_graph = False
    direction = ""

    def __init__(self, name: str, output: str | None) -> None:
        self.name = name
        self.output = output

    def update(self, labels: Any, predictions: Any) -> None:
        try:
            self._update(labels, predictions)
        except UserError:
            raise
        except Exception as error:
            given = f"labels {describe(labels)} and predictions {describe(predictions)}"
            raise definition_error(f"The metric {self.name} cannot take {given}", error) from error

    def prepare(self, labels: Any, predictions: Any) -> None:
        """Prepares the metric; only Keras's need it."""
        return

    @abc.abstractmethod
    def _update(self, labels: Any, predictions: Any) -> None: ...

    @abc.abstractmethod
    def states(self) -> tuple[Array, ...]: ...

    @abc.abstractmethod
    def load(self, states: Sequence[Array]) -> None: ...

    @abc.abstractmethod
    def result(self) -> Any: ...

    @abc.abstractmethod
    def reset(self) -> None: ...


class _KerasMetric(_Metric):
    def __init__(self, name: str, output: str | None, native: Any) -> None:
        super().__init__(name, output)
        self._native = native
        # A class of the user's may do what cannot be put in a graph.
        self.in_graph = type(native).__module__.partition(".")[0] in _FRAMEWORKS
        self.direction = {"up": "max", "down": "min"}.get(getattr(native, "_direction", None) or "", "")

    def prepare(self, labels: Any, predictions: Any) -> None:
        before = self.states()
        whole = self._alone(labels, predictions)
        size = _size(predictions)
        if not self.in_graph and size > 1:
            halves = (slice(0, size // 2), slice(size // 2, None))
            parts = [self._alone(*_cut((labels, predictions), half)) for half in halves]
            sums = [first + second for first, second in zip(*parts, strict=True)]
            if not all(
                np.allclose(one, other, rtol=1e-4, atol=1e-5) for one, other in zip(sums, whole, strict=True)
            ):
                raise UserError(
                    f"The metric {self.name} ({type(self._native).__name__}) cannot be evaluated in parts: its"
                    " state over two halves of a batch does not add up to that over the batch.",
                    hint="Keep sums and counts in its variables, and divide in result().",
                )
        if len(before) == len(whole):
            self.load(before)

    def _alone(self, labels: Any, predictions: Any) -> tuple[Array, ...]:
        """The state over these samples and no others."""
        self.reset()
        self.update(labels, predictions)
        states = self.states()
        self.reset()
        return states

    def _update(self, labels: Any, predictions: Any) -> None:
        self._native.update_state(labels, predictions)

    def states(self) -> tuple[Array, ...]:
        # In double precision, so that the sum over many parts stays as good as they are.
        return tuple(_widened(variable.numpy()) for variable in self._native.variables)

    def load(self, states: Sequence[Array]) -> None:
        variables = list(self._native.variables)
        if len(variables) != len(states):
            raise UserError(f"The metric {self.name} has another kind of state than what was evaluated.")
        for variable, state in zip(variables, states, strict=True):
            variable.assign(np.asarray(state).astype(tf.as_dtype(variable.dtype).as_numpy_dtype))

    def result(self) -> Any:
        return self._native.result()

    def reset(self) -> None:
        self._native.reset_state()


class _FunctionMetric(_Metric):
    """The mean over samples of a function, which gives one number for each of them or one for the batch."""

    def __init__(self, name: str, output: str | None, function: Callable[..., Any]) -> None:
        super().__init__(name, output)
        self._function = function
        self.reset()

    def _update(self, labels: Any, predictions: Any) -> None:
        value = np.asarray(self._function(labels, predictions), np.float64)
        size = _size(predictions)
        self._sum += float(value.mean()) * size
        self._count += size

    def states(self) -> tuple[Array, ...]:
        return np.array(self._sum), np.array(self._count)

    def load(self, states: Sequence[Array]) -> None:
        self._sum, self._count = float(states[0]), int(states[1])

    def result(self) -> float:
        return self._sum / self._count if self._count else float("nan")

    def reset(self) -> None:
        self._sum, self._count = 0.0, 0


class _OwnMetric(_Metric):
    """A metric of `elasticdl.worker.scoring.metrics`."""

    def __init__(self, name: str, output: str | None, native: Any) -> None:
        super().__init__(name, output)
        self._native = native

    def _update(self, labels: Any, predictions: Any) -> None:
        self._native.update(*tf.nest.map_structure(np.asarray, (labels, predictions)))

    def states(self) -> tuple[Array, ...]:
        states: tuple[Array, ...] = self._native.states()
        return states

    def load(self, states: Sequence[Array]) -> None:
        self._native.load(states)

    def result(self) -> Any:
        return self._native.result()

    def reset(self) -> None:
        self._native.reset()


def _adapt(name: str, metric: Any, output: str | None, definition: str) -> _Metric:
    if not isinstance(metric, type):
        if hasattr(metric, "update_state") and hasattr(metric, "variables"):
            return _KerasMetric(name, output, metric)
        if hasattr(metric, "update") and hasattr(metric, "states") and hasattr(metric, "load"):
            return _OwnMetric(name, output, metric)
        if callable(metric):
            return _FunctionMetric(name, output, metric)
    what = f"the class {metric.__name__}" if isinstance(metric, type) else f"a {type(metric).__name__}"
    raise UserError(
        f"The metric {name} of {definition} is {what}.",
        hint="It must be a Keras metric object, such as tf.keras.metrics.AUC(), or a function of labels and"
        " predictions.",
    )


def _size(predictions: Any) -> int:
    return int(tf.nest.flatten(predictions)[0].shape[0])


def _cut(structure: Any, part: slice) -> Any:
    return tf.nest.map_structure(lambda tensor: tensor[part], structure)


def _widened(array: Any) -> Array:
    return np.array(array, np.float64 if np.issubdtype(np.asarray(array).dtype, np.floating) else None)


def _numbers(name: str, result: Any) -> dict[str, float]:
    """Most results are one number; one a class becomes NAME_0, NAME_1, …"""
    if isinstance(result, Mapping):
        return {
            key: value
            for part, one in result.items()
            for key, value in _numbers(f"{name}_{part}", one).items()
        }
    values = np.asarray(result, np.float64)
    if values.ndim == 0:
        return {name: float(values)}
    return {f"{name}_{index}": float(value) for index, value in enumerate(values.ravel())}
