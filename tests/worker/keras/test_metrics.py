"""Metrics over parts, merged, are those over the whole; whatever kind of metric it is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.scoring.metrics import AUC, Accuracy
from elasticdl.worker.trainer import Batch, MetricStates, Shard

metrics = tf.keras.metrics
RANDOM = np.random.default_rng(0)
SIZE = 97
CLASSES = 4

# Labels and predictions of a kind, and the metrics for them. "Predictions" are the features, passed through.
BINARY = (RANDOM.integers(0, 2, (SIZE, 1)), RANDOM.random((SIZE, 1)))
CLASS_IDS = (RANDOM.integers(0, CLASSES, SIZE), RANDOM.dirichlet(np.ones(CLASSES), SIZE))
ONE_HOT = (np.eye(CLASSES)[CLASS_IDS[0]], CLASS_IDS[1])
NUMBERS = (RANDOM.normal(size=(SIZE, 3)), RANDOM.normal(size=(SIZE, 3)))
MASKS = (RANDOM.integers(0, CLASSES, (SIZE, 5)), RANDOM.integers(0, CLASSES, (SIZE, 5)))

FAMILIES: dict[str, tuple[Any, dict[str, dict[str, Any]]]] = {
    "binary": (
        BINARY,
        {
            "BinaryAccuracy": {},
            "BinaryCrossentropy": {},
            "AUC": {},
            "Precision": {},
            "Recall": {"thresholds": [0.2, 0.7]},
            "TruePositives": {},
            "TrueNegatives": {},
            "FalsePositives": {},
            "FalseNegatives": {},
            "SensitivityAtSpecificity": {"specificity": 0.5},
            "SpecificityAtSensitivity": {"sensitivity": 0.5},
            "PrecisionAtRecall": {"recall": 0.5},
            "RecallAtPrecision": {"precision": 0.5},
            "Hinge": {},
            "SquaredHinge": {},
            "BinaryIoU": {"target_class_ids": [0, 1], "threshold": 0.5},
        },
    ),
    "class ids": (
        CLASS_IDS,
        {
            "SparseCategoricalAccuracy": {},
            "SparseCategoricalCrossentropy": {},
            "SparseTopKCategoricalAccuracy": {"k": 2},
        },
    ),
    "one hot": (
        ONE_HOT,
        {
            "CategoricalAccuracy": {},
            "CategoricalCrossentropy": {},
            "TopKCategoricalAccuracy": {"k": 2},
            "AUC": {"multi_label": True},
            "CategoricalHinge": {},
            "OneHotMeanIoU": {"num_classes": CLASSES},
            "OneHotIoU": {"num_classes": CLASSES, "target_class_ids": [1]},
            "F1Score": {"average": "macro"},
            "FBetaScore": {"average": "weighted", "beta": 2.0},
            "KLDivergence": {},
        },
    ),
    "numbers": (
        NUMBERS,
        {
            "MeanSquaredError": {},
            "RootMeanSquaredError": {},
            "MeanAbsoluteError": {},
            "MeanAbsolutePercentageError": {},
            "MeanSquaredLogarithmicError": {},
            "LogCoshError": {},
            "CosineSimilarity": {"axis": 1},
            "Poisson": {},
            "R2Score": {},
        },
    ),
    "masks": (
        MASKS,
        {"MeanIoU": {"num_classes": CLASSES}, "IoU": {"num_classes": CLASSES, "target_class_ids": [2]}},
    ),
}
STANDARD = [
    pytest.param(family, name, options, id=f"{name} of {family}")
    for family, (_, table) in FAMILIES.items()
    for name, options in table.items()
]


@pytest.fixture
def evaluator(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(
        eval_metrics_fn: Callable[[], Any], shape: tuple[int, ...], dtype: str = "float32"
    ) -> KerasTrainer:
        given = tf.keras.Input(shape, dtype=dtype)
        model = tf.keras.Model(given, tf.keras.layers.Activation("linear", dtype=dtype)(given))
        definition = make_definition(
            loss=lambda labels, predictions: tf.cast(tf.reduce_sum(predictions, axis=-1), tf.float32),
            eval_metrics_fn=eval_metrics_fn,
        )
        return KerasTrainer(definition=definition, model=model)

    return make


def batches(labels: Any, predictions: Any, cuts: list[int]) -> list[Batch]:
    found = []
    shard = Shard(lease_id=0, epoch=0, start=0, end=SIZE)
    for start, end in zip([0, *cuts], [*cuts, len(predictions)], strict=True):
        features = tf.constant(predictions[start:end])
        if features.dtype == tf.float64:
            features = tf.cast(features, tf.float32)
        given = tf.constant(labels[start:end])
        given = tf.cast(given, tf.float32) if given.dtype == tf.float64 else given
        found.append(
            Batch(
                shard=shard,
                position=end,
                atomic=False,
                last=False,
                size=end - start,
                features=features,
                labels=given,
            )
        )
    return found


def merged(parts: list[list[MetricStates]]) -> list[MetricStates]:
    return [
        MetricStates(
            name=states[0].name,
            arrays=tuple(sum(arrays) for arrays in zip(*(s.arrays for s in states), strict=True)),
        )
        for states in zip(*parts, strict=True)
    ]


@pytest.mark.parametrize(("family", "name", "options"), STANDARD)
def test_standard_metrics_merge(
    evaluator: Callable[..., KerasTrainer], family: str, name: str, options: dict[str, Any]
) -> None:
    (labels, predictions), _ = FAMILIES[family]
    dtype = "int64" if family == "masks" else "float32"
    trainer = evaluator(lambda: {"m": getattr(metrics, name)(**options)}, predictions.shape[1:], dtype)
    parts = []
    for cuts in batches(labels, predictions, [10, 11, 40]):
        trainer.evaluate(cuts)
        parts.append(trainer.take_metric_states())
    found = trainer.metric_values(merged(parts))
    whole = getattr(metrics, name)(**options)
    (everything,) = batches(labels, predictions, [])
    whole.update_state(everything.labels, everything.features)
    expected = np.ravel(np.asarray(whole.result()))
    np.testing.assert_allclose([value for key, value in found.items() if key != "loss"], expected, rtol=1e-5)
    assert found["loss"] == pytest.approx(float(np.sum(predictions, axis=-1).mean()), rel=1e-4)


def test_all_metrics_of_keras_have_been_looked_at() -> None:
    tested = {name for _, table in FAMILIES.values() for name in table}
    # These are not metrics of labels and predictions, or are bases of others.
    others = {"Metric", "Mean", "Sum", "MeanMetricWrapper", "MeanTensor", "MeanRelativeError", "Accuracy"}
    # Written by later versions only.
    newer = {"PearsonCorrelation", "ConcordanceCorrelation"}
    there = {name for name in dir(metrics) if isinstance(getattr(metrics, name), type)}
    assert there - others - newer <= tested


def test_functions_are_means_over_samples(evaluator: Callable[..., KerasTrainer]) -> None:
    def each(labels: Any, predictions: Any) -> Any:
        return tf.equal(labels, tf.argmax(predictions, axis=1))

    def one(labels: Any, predictions: Any) -> Any:
        return float(np.mean(labels.numpy() == np.argmax(predictions.numpy(), axis=1)))

    labels, predictions = CLASS_IDS
    trainer = evaluator(lambda: {"each": each, "one": one}, (CLASSES,))
    for batch in batches(labels, predictions, [10, 90]):
        trainer.evaluate(batch)
    found = trainer.metric_values(trainer.take_metric_states())
    expected = float(np.mean(labels == predictions.argmax(axis=1)))
    assert found["each"] == pytest.approx(expected)
    assert found["one"] == pytest.approx(expected)


def test_metrics_of_ours(evaluator: Callable[..., KerasTrainer]) -> None:
    labels, predictions = BINARY
    trainer = evaluator(lambda: {"auc": AUC(), "right": Accuracy()}, (1,))
    for batch in batches(labels, predictions, [30]):
        trainer.evaluate(batch)
    found = trainer.metric_values(trainer.take_metric_states())
    assert found["right"] == pytest.approx(float(np.mean((predictions > 0.5) == labels)))
    exact = metrics.AUC(num_thresholds=10000)
    exact.update_state(labels, predictions)
    assert found["auc"] == pytest.approx(float(exact.result()), abs=1e-3)


def test_states_are_reset_after_they_were_taken(evaluator: Callable[..., KerasTrainer]) -> None:
    trainer = evaluator(lambda: {"acc": metrics.SparseCategoricalAccuracy()}, (CLASSES,))
    (batch,) = batches(*CLASS_IDS, [])
    trainer.evaluate(batch)
    first = trainer.take_metric_states()
    assert trainer.take_metric_states() == []
    trainer.evaluate(batch)
    second = trainer.take_metric_states()
    for one, other in zip(first, second, strict=True):
        for left, right in zip(one.arrays, other.arrays, strict=True):
            np.testing.assert_allclose(left, right)


def test_values_of_others_do_not_disturb_what_is_being_added_up(
    evaluator: Callable[..., KerasTrainer],
) -> None:
    trainer = evaluator(lambda: {"acc": metrics.SparseCategoricalAccuracy()}, (CLASSES,))
    first, second = batches(*CLASS_IDS, [50])
    trainer.evaluate(first)
    other = [MetricStates(name="acc", arrays=(np.array(3.0), np.array(4.0)))]
    assert trainer.metric_values(other) == {"acc": 0.75}
    trainer.evaluate(second)
    found = trainer.metric_values(trainer.take_metric_states())
    assert found["acc"] == pytest.approx(float(np.mean(CLASS_IDS[0] == CLASS_IDS[1].argmax(axis=1))))


def test_worker_that_has_evaluated_nothing_knows_the_values(evaluator: Callable[..., KerasTrainer]) -> None:
    def make() -> dict[str, Any]:
        return {"f1": metrics.F1Score(average="micro")}

    (batch,) = batches(*ONE_HOT, [])
    worker, other = evaluator(make, (CLASSES,)), evaluator(make, (CLASSES,))
    worker.evaluate(batch)
    states = worker.take_metric_states()
    other.build(batch)
    assert other.metric_values(states) == worker.metric_values(states)


class Largest(metrics.Metric):  # type: ignore[name-defined]
    """Not to be added up."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.seen = self.add_weight(name="seen", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.seen.assign(tf.maximum(tf.convert_to_tensor(self.seen), tf.reduce_max(y_pred)))

    def result(self) -> Any:
        return tf.convert_to_tensor(self.seen)


class Positive(metrics.Metric):  # type: ignore[name-defined]
    """Counts with the help of NumPy, which cannot be part of a graph."""

    def __init__(self) -> None:
        super().__init__(name="positive")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(float((y_pred.numpy() > 0.5).sum()))

    def result(self) -> Any:
        return tf.convert_to_tensor(self.count)


def test_metric_of_the_users_that_does_not_add_up(evaluator: Callable[..., KerasTrainer]) -> None:
    trainer = evaluator(lambda: {"top": Largest()}, (1,))
    (batch,) = batches(*BINARY, [])
    with pytest.raises(UserError, match=r"The metric top \(Largest\) cannot be evaluated in parts"):
        trainer.evaluate(batch)


def test_metric_of_the_users_that_adds_up(evaluator: Callable[..., KerasTrainer]) -> None:
    trainer = evaluator(lambda: {"positive": Positive()}, (1,))
    for batch in batches(*BINARY, [1, 50]):
        trainer.evaluate(batch)
    found = trainer.metric_values(trainer.take_metric_states())
    assert found["positive"] == float((BINARY[1] > 0.5).sum())


def test_metrics_of_single_outputs(make_definition: Callable[..., ModelDefinition]) -> None:
    given = tf.keras.Input((2,))
    model = tf.keras.Model(given, {"a": given[:, :1] * 1.0, "b": given[:, 1:] * 1.0})

    def make() -> dict[str, Any]:
        return {
            "a": {"mse": metrics.MeanSquaredError()},
            "b": {"mae": lambda labels, predictions: tf.abs(labels - predictions)},
            "all": lambda labels, predictions: tf.abs(predictions["a"] + predictions["b"]),
        }

    definition = make_definition(loss=lambda labels, predictions: predictions["a"], eval_metrics_fn=make)
    trainer = KerasTrainer(definition=definition, model=model)
    values = RANDOM.random((8, 2)).astype(np.float32)
    batch = Batch(
        shard=Shard(lease_id=0, epoch=0, start=0, end=8),
        position=8,
        atomic=False,
        last=True,
        size=8,
        features=tf.constant(values),
        labels={"a": tf.zeros([8, 1]), "b": tf.zeros([8, 1])},
    )
    trainer.evaluate(batch)
    found = trainer.metric_values(trainer.take_metric_states())
    assert found == pytest.approx(
        {
            "loss": values[:, 0].mean(),
            "a_mse": (values[:, 0] ** 2).mean(),
            "b_mae": values[:, 1].mean(),
            "all": values.sum(axis=1).mean(),
        }
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"loss": metrics.MeanSquaredError()}, "is called loss"),
        ({"acc": "accuracy"}, "The metric acc of test.definition.custom_model is a str"),
        ({"acc": metrics.AUC}, "is the class AUC"),
        ([metrics.AUC()], "returns a list"),
        (
            {"c": {"acc": metrics.BinaryAccuracy()}},
            "The metric c_acc is for the output c, which labels do not have",
        ),
    ],
)
def test_invalid_metric_is_rejected(evaluator: Callable[..., KerasTrainer], given: Any, words: str) -> None:
    trainer = evaluator(lambda: given, (1,))
    (batch,) = batches(*BINARY, [])
    with pytest.raises(UserError) as caught:
        trainer.evaluate(batch)
    assert words in str(caught.value)
