"""The metrics of a model definition in PyTorch or Paddle, over the batches of an evaluation.

`eval_metrics_fn()` returns names with metrics of `metrics.py` or with functions of (labels, predictions),
and for models with several outputs a dict of those for each. The loss is always one more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.worker.batching.collate import describe
from elasticdl.worker.definition import function_error
from elasticdl.worker.scoring.metric_base import Averaged, Metric
from elasticdl.worker.scoring.metrics import as_metrics
from elasticdl.worker.trainer import MetricStates

LOSS = "loss"


class _Loss(Averaged):
    """The mean loss of the samples, from the mean loss of batches."""

    def update(self, labels: Any, predictions: Any) -> None:
        raise NotImplementedError("the loss comes from the definition, not from labels and predictions")


class EvaluationMetrics:
    def __init__(self, eval_metrics_fn: Callable[[], Any]) -> None:
        self._loss = _Loss(LOSS)
        self._metrics: dict[str, tuple[tuple[Any, ...], Metric]] = {}
        try:
            self._metrics = as_metrics(eval_metrics_fn() or {})
        except TypeError as error:
            raise UserError(
                f"eval_metrics_fn() cannot be used: {error}.",
                hint="Return a dict from names to metrics of elasticdl.worker.scoring.metrics, "
                "or to functions of (labels, predictions).",
            ) from error
        if LOSS in self._metrics:
            raise UserError(
                "eval_metrics_fn() has a metric called loss, which is the name of the loss itself."
            )

    def add(self, labels: Any, predictions: Any, loss: float, size: int) -> None:
        self._loss.add(np.array(loss * size), size)
        for name, (outputs, metric) in self._metrics.items():
            its_labels, its_predictions = labels, predictions
            for output in outputs:
                its_labels = _part(its_labels, output, name, "labels")
                its_predictions = _part(its_predictions, output, name, "predictions")
            try:
                metric.update(its_labels, its_predictions)
            except (ValueError, TypeError, RuntimeError, IndexError) as error:
                given = f"labels {describe(its_labels)} and predictions {describe(its_predictions)}"
                raise function_error(f"The metric {name}", error, given=given) from error

    def take(self) -> list[MetricStates]:
        states = [MetricStates(name=name, arrays=metric.states()) for name, metric in self._all().items()]
        for metric in self._all().values():
            metric.reset()
        return states

    def values(self, states: Sequence[MetricStates]) -> dict[str, float]:
        metrics = self._all()
        found: dict[str, float] = {}
        for state in states:
            metric = metrics[state.name]
            present = metric.states()
            metric.load(state.arrays)
            found[state.name] = metric.result()
            metric.load(present)
        return found

    def _all(self) -> dict[str, Metric]:
        return {LOSS: self._loss} | {name: metric for name, (_, metric) in self._metrics.items()}


def _part(values: Any, output: Any, metric: str, what: str) -> Any:
    named = outputs_by_name(values)
    if output not in named:
        raise UserError(
            f"The metric {metric} is for the output {output}; the {what} have {', '.join(map(str, named))}.",
            hint="Use the names of the model's outputs; those of a tuple are output_0, output_1 and so on.",
        )
    return named[output]


def outputs_by_name(outputs: Any) -> dict[str, Any]:
    """A model's outputs by name: those of a dict or named tuple, output_0 and so on of a tuple, or just
    output."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if hasattr(outputs, "_asdict"):
        return dict(outputs._asdict())
    if isinstance(outputs, (tuple, list)):
        return {f"output_{index}": each for index, each in enumerate(outputs)}
    return {"output": outputs}
