"""Metrics whose parts add up: what a PyTorch model definition's `eval_metrics_fn` is made of.

Evaluation is done by several workers, each over some shards of the data, and a worker may die in the
middle. So a metric is an array of sums ("states") and a formula for its value. States of disjoint samples
add up element by element; since all of them are integers (counts, and sums as in `summation.py`) the value
over the whole data set is the same to the last bit, however it was cut. Everything is NumPy; tensors of any
framework are accepted.

    def eval_metrics_fn():
        return {"accuracy": Accuracy(), "auc": AUC(from_logits=True)}
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.worker.scoring.metric_base import Averaged, Counts, Metric
from elasticdl.worker.scoring.metric_shapes import (
    as_numpy,
    binary_scores,
    class_ids,
    elementwise,
    sample_count,
)

Array = NDArray[Any]


class Mean(Averaged):
    """The mean of a function of labels and predictions.

    The function gives one number for each sample, or one for the batch, which then counts for each sample
    in it.
    """

    def __init__(self, function: Callable[[Any, Any], Any], name: str = "mean") -> None:
        super().__init__(name)
        self._function = function

    def update(self, labels: Any, predictions: Any) -> None:
        count = sample_count(predictions)
        values = as_numpy(self._function(labels, predictions)).astype(np.float64)
        if values.ndim == 0:
            self.add(values * count, count)
        elif values.shape[0] == count:
            self.add(values.reshape(count, -1).mean(axis=1), count)
        else:
            raise ValueError(f"the function gives {values.shape[0]} values for a batch of {count} samples")


class Accuracy(Counts):
    """The share of right answers.

    By shapes: predictions with an axis of classes more than the labels are compared by their greatest
    class, and so are one-hot labels; predictions with one number a label by `threshold` (0 for logits);
    whole numbers as they are.
    """

    def __init__(self, name: str = "accuracy", *, threshold: float = 0.5) -> None:
        super().__init__(name, (2,))
        self._threshold = threshold

    def update(self, labels: Any, predictions: Any) -> None:
        expected, found = class_ids(as_numpy(labels), as_numpy(predictions), self._threshold)
        self._counts += (np.count_nonzero(expected == found), expected.size)

    def result(self) -> float:
        right, total = self._counts.tolist()
        return right / total if total else math.nan


class TopKAccuracy(Counts):
    """The share of samples whose label has fewer than `k` classes above it."""

    def __init__(self, k: int = 5, name: str = "") -> None:
        super().__init__(name or f"top_{k}_accuracy", (2,))
        self._k = k

    def update(self, labels: Any, predictions: Any) -> None:
        scores = as_numpy(predictions)
        expected, _ = class_ids(as_numpy(labels), scores, 0.5)
        if scores.ndim != 2:
            raise ValueError(f"predictions of shape {scores.shape} have no axis of classes")
        own = np.take_along_axis(scores, expected.reshape(-1, 1), axis=1)
        # Written so that a NaN is never among the best.
        above = np.count_nonzero(~(scores <= own), axis=1)
        self._counts += (np.count_nonzero(above < self._k), expected.size)

    def result(self) -> float:
        right, total = self._counts.tolist()
        return right / total if total else math.nan


class _Confusion(Counts):
    """True positives, false positives and false negatives, of one class or of each."""

    def __init__(self, name: str, threshold: float, num_classes: int | None, average: str) -> None:
        if average not in ("macro", "micro"):
            raise ValueError(f"average is macro or micro, not {average}")
        super().__init__(name, (3, num_classes or 1))
        self._threshold = threshold
        self._average = average

    def update(self, labels: Any, predictions: Any) -> None:
        classes = self._counts.shape[1]
        if classes == 1:
            expected, scores = binary_scores(as_numpy(labels), as_numpy(predictions))
            found = scores > self._threshold
            for row, hits in enumerate((expected & found, ~expected & found, expected & ~found)):
                self._counts[row, 0] += np.count_nonzero(hits)
            return
        true, guess = class_ids(as_numpy(labels), as_numpy(predictions), self._threshold)
        for ids, what in ((true, "label"), (guess, "prediction")):
            if ids.size and not 0 <= ids.min() <= ids.max() < classes:
                raise ValueError(f"a {what} is class {ids.max()} and num_classes is {classes}")
        right = true == guess
        self._counts[0] += np.bincount(true[right], minlength=classes)
        self._counts[1] += np.bincount(guess[~right], minlength=classes)
        self._counts[2] += np.bincount(true[~right], minlength=classes)

    def result(self) -> float:
        counts = self._counts.sum(axis=1, keepdims=True) if self._average == "micro" else self._counts
        values = [self._value(*column) for column in counts.T.tolist()]
        return sum(values) / len(values)

    @abc.abstractmethod
    def _value(self, tp: int, fp: int, fn: int) -> float: ...


class Precision(_Confusion):
    """The share of samples called positive that are; 0 if none was.

    With `num_classes` it is that of every class against the rest, averaged ("macro") or counted in one
    ("micro").
    """

    def __init__(
        self,
        name: str = "precision",
        *,
        threshold: float = 0.5,
        num_classes: int | None = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, threshold, num_classes, average)

    def _value(self, tp: int, fp: int, fn: int) -> float:
        return tp / (tp + fp) if tp + fp else 0.0


class Recall(_Confusion):
    """The share of positive samples that are called so; 0 if there are none. Classes as in `Precision`."""

    def __init__(
        self,
        name: str = "recall",
        *,
        threshold: float = 0.5,
        num_classes: int | None = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, threshold, num_classes, average)

    def _value(self, tp: int, fp: int, fn: int) -> float:
        return tp / (tp + fn) if tp + fn else 0.0


class F1(_Confusion):
    """The harmonic mean of precision and recall. Classes as in `Precision`."""

    def __init__(
        self,
        name: str = "f1",
        *,
        threshold: float = 0.5,
        num_classes: int | None = None,
        average: str = "macro",
    ) -> None:
        super().__init__(name, threshold, num_classes, average)

    def _value(self, tp: int, fp: int, fn: int) -> float:
        return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0


class AUC(Counts):
    """The area under the ROC curve: how likely a positive sample scores above a negative one.

    Scores are sorted into `num_thresholds` buckets, which lie evenly on the scale x / (1 + |x| / 16) of the
    logit x: as fine for scores around 1e-6 as for those around 0.5, and without an end. Samples of one
    bucket count as equal, so the value is wrong by at most `error_bound()`: half the share of pairs that
    met in a bucket. Merging adds no error: the value over shards is that over the whole.
    """

    def __init__(
        self, name: str = "auc", *, num_thresholds: int = 1 << 14, from_logits: bool = False
    ) -> None:
        # The last column of each row counts scores that are not a number.
        super().__init__(name, (2, num_thresholds + 1))
        self._edges = _bucket_edges(num_thresholds, from_logits)
        self._from_logits = from_logits

    def update(self, labels: Any, predictions: Any) -> None:
        positive, scores = binary_scores(
            as_numpy(labels), as_numpy(predictions), from_logits=self._from_logits
        )
        if not self._from_logits and ((scores < -1e-6) | (scores > 1 + 1e-6)).any():
            raise ValueError("predictions lie outside of [0, 1]; if they are logits, say from_logits=True")
        buckets = np.searchsorted(self._edges, scores, side="right")
        width = self._counts.shape[1]
        buckets[np.isnan(scores)] = width - 1
        flat = np.bincount(buckets + width * positive, minlength=2 * width)
        self._counts += flat.reshape(2, width)

    def result(self) -> float:
        negative, positive = self._counts.astype(np.float64)
        pairs = negative.sum() * positive.sum()
        if pairs == 0 or negative[-1] or positive[-1]:
            return math.nan
        below = np.cumsum(negative) - negative
        return float((positive * (below + negative / 2)).sum() / pairs)

    def error_bound(self) -> float:
        negative, positive = self._counts.astype(np.float64)
        pairs = negative.sum() * positive.sum()
        return float((negative * positive).sum() / pairs / 2) if pairs else math.nan


@functools.lru_cache(maxsize=8)
def _bucket_edges(buckets: int, from_logits: bool) -> NDArray[np.float64]:
    scale = 16.0
    squashed = scale * (2 * np.arange(1, buckets) / buckets - 1)
    logits: NDArray[np.float64] = squashed / (1 - np.abs(squashed) / scale)
    tail = np.exp(-np.abs(logits))
    chances: NDArray[np.float64] = np.where(logits < 0, tail, 1.0) / (1 + tail)
    return logits if from_logits else chances


class LogLoss(Averaged):
    """The mean of -log(probability of the right class); two classes or more, by the predictions' shape."""

    def __init__(self, name: str = "log_loss", *, from_logits: bool = False) -> None:
        super().__init__(name)
        self._from_logits = from_logits

    def update(self, labels: Any, predictions: Any) -> None:
        raw = as_numpy(predictions)
        scores = raw.astype(np.float64)
        # A wrong probability of 0 or 1 would cost infinitely much; it is taken to be as wrong as its type
        # can tell.
        least = float(np.finfo(raw.dtype).eps) if raw.dtype.kind == "f" else 1e-12
        if scores.ndim >= 2 and scores.shape[-1] > 1:
            expected, _ = class_ids(as_numpy(labels), scores, 0.5)
            scores = scores.reshape(-1, scores.shape[-1])
            if expected.size != len(scores):
                raise ValueError(
                    f"labels and predictions of shape {raw.shape} have different numbers of samples"
                )
            if self._from_logits:
                scores = scores - scores.max(axis=1, keepdims=True)
                logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
            else:
                logs = np.log(np.clip(scores, least, 1 - least))
            self.add(-np.take_along_axis(logs, expected.reshape(-1, 1), axis=1), expected.size)
            return
        positive, scores = binary_scores(as_numpy(labels), scores)
        if self._from_logits:
            signed = np.where(positive, -scores, scores)
            self.add(np.logaddexp(0.0, signed), scores.size)
        else:
            scores = np.clip(scores, least, 1 - least)
            self.add(-np.log(np.where(positive, scores, 1 - scores)), scores.size)


class MeanSquaredError(Averaged):
    """Over all elements of labels and predictions, whose shapes must be the same (axes of length 1 apart)."""

    def __init__(self, name: str = "mean_squared_error") -> None:
        super().__init__(name)

    def update(self, labels: Any, predictions: Any) -> None:
        expected, found = elementwise(as_numpy(labels), as_numpy(predictions))
        self.add(np.square(found - expected), found.size)


class RootMeanSquaredError(MeanSquaredError):
    """The root of `MeanSquaredError`, taken after everything has been added up."""

    def __init__(self, name: str = "root_mean_squared_error") -> None:
        super().__init__(name)

    def result(self) -> float:
        return math.sqrt(super().result())


class MeanAbsoluteError(Averaged):
    """Over all elements, as `MeanSquaredError`."""

    def __init__(self, name: str = "mean_absolute_error") -> None:
        super().__init__(name)

    def update(self, labels: Any, predictions: Any) -> None:
        expected, found = elementwise(as_numpy(labels), as_numpy(predictions))
        self.add(np.abs(found - expected), found.size)


def as_metrics(given: Any, prefix: str = "") -> dict[str, tuple[tuple[Any, ...], Metric]]:
    """Flattens the result of `eval_metrics_fn`: a name, and the output it is for together with the metric.

    A mapping inside the mapping is for the output of that name; its metrics are called OUTPUT_METRIC.
    """
    if not isinstance(given, Mapping):
        given = {getattr(each, "name", getattr(each, "__name__", "")): each for each in given}
    found: dict[str, tuple[tuple[Any, ...], Metric]] = {}
    for name, each in given.items():
        if isinstance(each, Mapping):
            for inner, (_, metric) in as_metrics(each, f"{prefix}{name}_").items():
                found[inner] = ((name,), metric)
        elif isinstance(each, Metric):
            found[f"{prefix}{name}"] = ((), each)
        elif callable(each):
            found[f"{prefix}{name}"] = ((), Mean(each, str(name)))
        else:
            raise TypeError(
                f"the metric {prefix}{name} is neither a metric nor a function, but {type(each).__name__}"
            )
    return found
