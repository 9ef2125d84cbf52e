"""Metrics over no samples are an error, and no values that look like a result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.scoring.evaluation import Evaluator, _state_to_wire
from elasticdl.worker.scoring.evaluation_metrics import EvaluationMetrics
from elasticdl.worker.scoring.metrics import Accuracy

SPEC = JobSpec.build(
    job_name="words",
    model_zoo="zoo",
    model_def="m.m.custom_model",
    training_data="data",
    validation_data="rest",
)
DIRECTIVE = pb.Directive(evaluation_to_finish=1)


class Link:
    """A master that has the states of an evaluation."""

    node = "worker-0"

    def __init__(self, metrics: EvaluationMetrics) -> None:
        self.stub = SimpleNamespace(FinishEvaluation=self._finish)
        self.found: dict[str, float] = {}
        self._states = [_state_to_wire(state) for state in metrics.take()]

    def call(self, method: Any, request: Any) -> Any:
        return method(request)

    def _finish(self, request: pb.FinishEvaluationRequest) -> pb.FinishEvaluationReply:
        self.found = dict(request.metrics)
        return pb.FinishEvaluationReply(yours=request.claim, states=self._states if request.claim else [])


@pytest.fixture
def metrics() -> EvaluationMetrics:
    return EvaluationMetrics(lambda: {"accuracy": Accuracy()})


def finish(metrics: EvaluationMetrics) -> dict[str, float]:
    link: Any = Link(metrics)
    trainer: Any = SimpleNamespace(metric_values=metrics.values)
    assert Evaluator(link, SPEC, trainer).finish(DIRECTIVE, trainer)
    found: dict[str, float] = link.found
    return found


def test_evaluation_of_no_samples_fails(metrics: EvaluationMetrics) -> None:
    with pytest.raises(UserError, match="No sample of rest was evaluated"):
        finish(metrics)


def test_loss_of_zero_is_a_result(metrics: EvaluationMetrics) -> None:
    metrics.add(np.array([1, 0]), np.array([[0.0, 1.0], [1.0, 0.0]]), 0.0, 2)
    assert finish(metrics) == {"loss": 0.0, "accuracy": 1.0}
