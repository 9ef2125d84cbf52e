"""Metrics of a definition: over any cut of the data, for functions and metrics, for one output and several."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elasticdl.errors import UserError
from elasticdl.worker.scoring.metrics import AUC, Accuracy
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, MetricStates, Shard

torch.manual_seed(3)
FEATURES = torch.randn(40, 3)
LABELS = torch.randint(0, 2, (40,))


def batch_of(features: Any, labels: Any, size: int) -> Batch:
    shard = Shard(lease_id=1, epoch=0, start=0, end=size)
    return Batch(
        shard=shard, position=size, atomic=False, last=True, size=size, features=features, labels=labels
    )


def evaluate(trainer: TorchTrainer, edges: list[int], shards: int = 1) -> dict[str, float]:
    added: dict[str, list[Any]] = {}
    for part in range(shards):
        mine = list(itertools.pairwise(edges))[part::shards]
        for start, end in mine:
            trainer.evaluate(batch_of(FEATURES[start:end], LABELS[start:end], end - start))
        for state in trainer.take_metric_states():
            arrays = added.get(state.name)
            added[state.name] = (
                list(state.arrays)
                if arrays is None
                else [a + b for a, b in zip(arrays, state.arrays, strict=True)]
            )
    states = [MetricStates(name=name, arrays=tuple(arrays)) for name, arrays in added.items()]
    return trainer.metric_values(states)


@pytest.fixture
def trainer(make_definition: Any) -> TorchTrainer:
    torch.manual_seed(0)
    return TorchTrainer(
        nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)),
        make_definition(
            loss=lambda labels, predictions: nn.functional.cross_entropy(predictions, labels),
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
            eval_metrics_fn=lambda: {
                "accuracy": Accuracy(),
                "auc": AUC(from_logits=True),
                "right": lambda labels, predictions: (predictions.argmax(1) == labels).float(),
                "share": lambda labels, predictions: (predictions.argmax(1) == labels).float().mean(),
            },
        ),
    )


def test_values_over_the_whole(trainer: TorchTrainer) -> None:
    values = evaluate(trainer, [0, 40])
    trainer._model.eval()
    outputs = trainer._model(FEATURES)
    assert list(values) == ["loss", "accuracy", "auc", "right", "share"]
    assert values["loss"] == pytest.approx(nn.functional.cross_entropy(outputs, LABELS).item())
    share = (outputs.argmax(1) == LABELS).float().mean().item()
    assert values["accuracy"] == values["right"] == pytest.approx(share)
    assert values["share"] == pytest.approx(share)


@pytest.mark.parametrize("edges", [[0, 1, 40], [0, 8, 16, 24, 32, 40], [0, 39, 40]])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_values_in_parts(trainer: TorchTrainer, edges: list[int], shards: int) -> None:
    whole, parts = evaluate(trainer, [0, 40]), evaluate(trainer, edges, shards)
    assert parts == pytest.approx(whole)
    assert (parts["accuracy"], parts["auc"]) == (whole["accuracy"], whole["auc"])


def test_reading_values_keeps_what_is_being_counted(trainer: TorchTrainer) -> None:
    trainer.evaluate(batch_of(FEATURES[:10], LABELS[:10], 10))
    states = trainer.take_metric_states()
    trainer.evaluate(batch_of(FEATURES[10:], LABELS[10:], 30))
    trainer.metric_values(states)
    counted = {state.name: state.arrays for state in trainer.take_metric_states()}
    assert counted["accuracy"][0][1] == 30


def test_evaluation_neither_trains_nor_leaves_training_mode(trainer: TorchTrainer) -> None:
    batch = batch_of(FEATURES, LABELS, 40)
    trainer.train(batch)
    before = trainer.parameters().trainable
    trainer.evaluate(batch)
    for name, value in trainer.parameters().trainable.items():
        np.testing.assert_array_equal(value, before[name])
    torch.manual_seed(1)
    first = trainer.gradients(batch)[0]
    torch.manual_seed(2)
    assert trainer.gradients(batch)[0] != first


class Both(nn.Module):
    def __init__(self, named: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 1)
        self.named = named

    def forward(self, features: Any) -> Any:
        a, b = self.a(features), self.b(features)
        return {"class": a, "size": b} if self.named else (a, b)


@pytest.mark.parametrize("named", [True, False])
def test_metrics_of_several_outputs(named: bool, make_definition: Any) -> None:
    first, second = ("class", "size") if named else ("output_0", "output_1")

    def loss(labels: Any, predictions: Any) -> Any:
        keys = (first, second) if named else (0, 1)
        return nn.functional.cross_entropy(predictions[keys[0]], labels[keys[0]])

    trainer = TorchTrainer(
        Both(named),
        make_definition(
            loss=loss,
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
            eval_metrics_fn=lambda: {
                first: {"accuracy": Accuracy()},
                second: {"error": lambda labels, predictions: (labels - predictions.squeeze(1)).abs()},
            },
        ),
    )
    labels = {first: LABELS, second: torch.ones(40)} if named else (LABELS, torch.ones(40))
    trainer.evaluate(batch_of(FEATURES, labels, 40))
    assert list(trainer.metric_values(trainer.take_metric_states())) == [
        "loss",
        f"{first}_accuracy",
        f"{second}_error",
    ]


def failing(metrics: Any, make_definition: Any, labels: Any = LABELS) -> str:
    trainer = TorchTrainer(
        nn.Linear(3, 2),
        make_definition(
            loss=lambda labels, predictions: predictions.sum(),
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
            eval_metrics_fn=lambda: metrics,
        ),
    )
    with pytest.raises(UserError) as caught:
        trainer.evaluate(batch_of(FEATURES, labels, 40))
    return str(caught.value)


def test_metrics_that_do_not_fit(make_definition: Any) -> None:
    message = failing({"accuracy": Accuracy()}, make_definition, torch.zeros(39))
    assert "The metric accuracy does not fit labels float32[39] and predictions float32[40, 2]" in message
    assert "is for the output size; the labels have output" in failing(
        {"size": {"a": Accuracy()}}, make_definition
    )
    assert "called loss" in failing({"loss": Accuracy()}, make_definition)
    assert "neither a metric nor a function" in failing({"x": 3}, make_definition)


def test_evaluation_needs_no_optimizer(make_definition: Any) -> None:
    trainer = TorchTrainer(
        nn.Linear(3, 2),
        make_definition(
            loss=lambda labels, predictions: nn.functional.cross_entropy(predictions, labels),
            eval_metrics_fn=lambda: {"accuracy": Accuracy()},
        ),
    )
    batch = batch_of(FEATURES, LABELS, 40)
    trainer.build(batch)
    trainer.set_parameters(trainer.parameters())
    trainer.evaluate(batch)
    assert trainer.predict(batch)["output"].shape == (40, 2)
