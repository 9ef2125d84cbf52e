"""What callbacks freeze in all-reduce is not trained from the very step on that they freeze it for, and what they let
be trained is, also in a worker that comes late: the loop of a worker, with a team of its own.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from elasticai_api.pytorch.solo import Solo
from elasticdl.jobs.spec import JobSpec
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.lease_memory import LeaseMemory
from elasticdl.worker.torch.allreduce_loop import AllReduceLoop, _ReplicatedModel, _TrainerReplica
from elasticdl.worker.torch.trainer import TorchTrainer
from tests.worker.torch_freezing import InTheMiddle

SPEC = JobSpec.build(
    model_zoo="zoo",
    model_def="m.m.custom_model",
    training_data="data",
    minibatch_size=4,
    num_workers=2,
    distribution_strategy="AllreduceStrategy",
)
EPOCHS, STEPS = 4, 2


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(features)))


class ByBatches(InTheMiddle):
    """The body is frozen from the second step on."""

    def on_train_begin(self, logs: Any) -> None: ...

    def on_epoch_begin(self, epoch: int, logs: Any) -> None: ...

    def on_train_batch_begin(self, step: int, logs: Any) -> None:
        self.model.body.requires_grad_(step == 0)


class Team(Solo):
    """One that the loop has: nothing of its data is unreadable."""

    def done(self, samples: int, loss: float, bad: Any = ()) -> bool:
        assert not bad
        return super().done(samples, loss)


@pytest.fixture
def make_loop(
    make_definition: Callable[..., ModelDefinition],
    memory_reader: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[type], Any]]:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1:1")
    made: list[Any] = []
    history = pb.HistoryReply(epochs=[pb.EpochEnd(epoch=epoch) for epoch in range(EPOCHS)])
    link: Any = SimpleNamespace(
        node="worker-0",
        memory=LeaseMemory(),
        stub=SimpleNamespace(History=lambda _: history),
        directive=pb.Directive,
        call=lambda method, request: method(request),
    )

    def make(callback: type) -> Any:
        torch.manual_seed(0)
        trainer = TorchTrainer(
            Network(),
            make_definition(
                feed=lambda records, mode, metadata: (
                    (torch.tensor(each), torch.ones(1)) for each in records
                ),
                loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
                optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1, weight_decay=0.1),
                callbacks=lambda: [callback()],
            ),
        )
        # Two micro-batches a step.
        reader = memory_reader([[float(i), 1.0, -i / 2] for i in range(8 * STEPS)])
        loop: Any = AllReduceLoop(
            link=link, spec=SPEC, trainer=trainer, training=reader, validation=None, token="token"
        )
        made.append(loop)
        loop._model = _ReplicatedModel(trainer)
        loop._make_ready()
        loop._team = Team(
            replica=_TrainerReplica(loop, loop._model),
            size=len(reader),
            batch_size=4,
            epochs=EPOCHS,
            per_step=2,
            shuffle=False,
        )
        return loop

    yield make
    for loop in made:
        if loop._ahead is not None:
            loop._ahead.close()
        loop._line.close()
        loop._reporter.close()


def body_after_each_step(loop: Any) -> list[torch.Tensor]:
    body = loop._torch._model.body.weight
    seen = [body.detach().clone()]
    while (micro := loop._team.next()) is not None:
        loop._compute(loop._team, micro)
        if not loop._team._done:
            seen.append(body.detach().clone())
    return seen


def trained(seen: list[torch.Tensor]) -> list[bool]:
    return [not torch.equal(before, after) for before, after in pairwise(seen)]


def test_from_the_first_step_on(make_loop: Callable[[type], Any]) -> None:
    assert trained(body_after_each_step(make_loop(InTheMiddle))) == ([False] * STEPS + [True] * STEPS) * 2


def test_parameters_frozen_after_backward_are_not_updated(make_loop: Callable[[type], Any]) -> None:
    assert trained(body_after_each_step(make_loop(ByBatches))) == [True] + [False] * (EPOCHS * STEPS - 1)


@pytest.mark.parametrize(("epoch", "is_trained"), [(2, False), (3, True)])
def test_a_worker_that_comes_late(make_loop: Callable[[type], Any], epoch: int, is_trained: bool) -> None:
    loop = make_loop(InTheMiddle)
    while loop._team.place.epoch < epoch:
        loop._team.place = loop._team._after(loop._team.place)
    assert trained(body_after_each_step(loop))[0] == is_trained
