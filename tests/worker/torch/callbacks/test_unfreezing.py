"""What is frozen for some epochs and trained afterwards, as in fine-tuning: in one worker as PyTorch does it, and the
same on parameter servers; where that cannot be, an error says so.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import Model
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard
from tests.worker.epochs import EPOCHS, alone, served, train
from tests.worker.torch_freezing import InTheMiddle

BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=16),
    position=16,
    atomic=False,
    last=True,
    size=16,
    features=torch.randint(0, 20, (16, 3), generator=torch.Generator().manual_seed(0)),
    labels=torch.ones(16, 1),
)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(ids.float() / 20)))


def frozen(network: type[Network]) -> Callable[[], Network]:
    def make() -> Network:
        made = network()
        made.body.requires_grad_(False)
        return made

    return make


def loss(labels: Any, predictions: Any) -> Any:
    return ((labels - predictions) ** 2).mean()


def optimizer(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, 0.05, weight_decay=0.1)


@pytest.fixture
def make(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    def make(network: Callable[[], Network], **functions: Any) -> TorchTrainer:
        torch.manual_seed(0)
        functions = {"optimizer": optimizer, "callbacks": lambda: [InTheMiddle()], **functions}
        return TorchTrainer(network(), make_definition(loss=loss, **functions))

    return make


@pytest.fixture
def on_servers(table_servers: tuple[list[Any], list[str]]) -> Callable[[TorchTrainer], Model]:
    return lambda trainer: served(trainer, table_servers[1])


def plainly(network: Callable[[], Network]) -> list[float]:
    """In PyTorch itself."""
    torch.manual_seed(0)
    made, callback = network(), InTheMiddle()
    steps = optimizer(made.parameters())
    callback.set_model(made)
    losses = []
    for epoch in range(EPOCHS):
        callback.on_epoch_begin(epoch, {})
        for _ in range(3):
            steps.zero_grad()
            value = loss(BATCH.labels, made(BATCH.features))
            value.backward()
            steps.step()
            losses.append(float(value.detach()))
    return losses


@pytest.mark.parametrize("network", [Network, frozen(Network)], ids=["trained at first", "frozen at first"])
def test_one_worker_does_as_pytorch_does(
    make: Callable[..., TorchTrainer], network: Callable[[], Network]
) -> None:
    trainer = make(network)
    np.testing.assert_allclose(train(trainer, alone(trainer), BATCH), plainly(network), rtol=1e-5)


def test_layer_frozen_at_build_cannot_be_trained_by_allreduce_later(
    make: Callable[..., TorchTrainer],
) -> None:
    trainer = make(frozen(Network))
    trainer.accumulate(BATCH)
    trainer._model.body.requires_grad_(True)
    with pytest.raises(
        UserError, match=r"body\.weight, body\.bias: frozen when the model was made"
    ) as caught:
        trainer.accumulate(BATCH)
    assert "on_train_begin" in caught.value.hint


def test_all_that_may_be_trained_is_added_up_whenever_a_worker_comes(
    make: Callable[..., TorchTrainer],
) -> None:
    """Whatever is frozen by then: members send each other as much."""
    from elasticai_api.pytorch.gradients import Gradients

    early, late = make(Network), make(Network)
    first = Gradients(early.shared_parameters())
    for trainer in (early, late):
        trainer.build(BATCH)
        trainer.callbacks(leader=True, epochs=EPOCHS).fire("on_train_begin", {})
    second = Gradients(late.shared_parameters())
    assert [p.shape for p in first.parameters] == [p.shape for p in second.parameters]
    late.accumulate(BATCH)
    assert [p.grad is None for p in second.parameters] == [True, True, False, False]


class AddsGroup(InTheMiddle):
    """As fine-tuning is often written."""

    rate = 0.05

    def set_optimizer(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def on_epoch_begin(self, epoch: int, logs: Any) -> None:
        if epoch == 2:
            self.model.body.requires_grad_(True)
            self.optimizer.add_param_group({"params": self.model.body.parameters(), "lr": self.rate})


class AddsSlowGroup(AddsGroup):
    rate = 0.001


class ChangesDecay(AddsGroup):
    def on_epoch_begin(self, epoch: int, logs: Any) -> None:
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.1 / (1 + epoch)


def of_head(model: Any) -> Any:
    return optimizer(model.head.parameters())


def test_a_group_that_is_added_is_trained(
    make: Callable[..., TorchTrainer], on_servers: Callable[[TorchTrainer], Model]
) -> None:
    here, there = (make(Network, optimizer=of_head, callbacks=lambda: [AddsGroup()]) for _ in range(2))
    before = here.parameters().trainable["body.weight"]
    np.testing.assert_allclose(
        train(there, on_servers(there), BATCH), train(here, alone(here), BATCH), rtol=1e-4
    )
    assert not np.array_equal(here.parameters().trainable["body.weight"], before)


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (AddsSlowGroup, "parameter groups that differ in lr"),
        (ChangesDecay, "weight_decay of the optimizer Adam changes in the middle"),
    ],
)
def test_changes_unknown_to_servers_are_an_error(
    make: Callable[..., TorchTrainer],
    on_servers: Callable[[TorchTrainer], Model],
    callback: Callable[[], Any],
    message: str,
) -> None:
    functions = {"optimizer": of_head, "callbacks": lambda: [callback()]}
    trainer = make(Network, **functions)
    with pytest.raises(UserError, match=message):
        train(trainer, on_servers(trainer), BATCH)
    trainer = make(Network, **functions)
    assert len(train(trainer, alone(trainer), BATCH)) == 3 * EPOCHS
