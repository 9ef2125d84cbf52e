"""A step of the trainer is a step of PyTorch, here and on parameter servers."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Parameters, Shard

Optimizer = Callable[[Any], Any]


def batch_of(features: Any, labels: Any, size: int = 8) -> Batch:
    shard = Shard(lease_id=1, epoch=0, start=0, end=size)
    return Batch(
        shard=shard, position=size, atomic=False, last=True, size=size, features=features, labels=labels
    )


def batches(count: int) -> list[Batch]:
    torch.manual_seed(1)
    return [batch_of(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(count)]


def cross_entropy(labels: Any, predictions: Any) -> Any:
    return nn.functional.cross_entropy(predictions, labels)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 2))


OPTIMIZERS: list[Optimizer] = [
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    lambda p: torch.optim.SGD(p, lr=0.1, maximize=True),
    lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.01, initial_accumulator_value=0.1),
    lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.01),
    lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.8, momentum=0.5, centered=True, weight_decay=0.01),
    lambda p: torch.optim.Adadelta(p, lr=1.0, rho=0.8, weight_decay=0.01),
    lambda p: torch.optim.Adamax(p, lr=0.01, weight_decay=0.01),
    lambda p: torch.optim.NAdam(p, lr=0.01, momentum_decay=0.01, weight_decay=0.01),
    lambda p: torch.optim.NAdam(p, lr=0.01, decoupled_weight_decay=True, weight_decay=0.01),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_here_are_those_of_a_plain_loop(optimizer: Optimizer, make_definition: Any) -> None:
    given = batches(4)
    plain = model()
    plain_optimizer = optimizer(plain.parameters())
    torch.manual_seed(5)
    expected = []
    for batch in given:
        plain_optimizer.zero_grad()
        loss = nn.functional.cross_entropy(plain(batch.features), batch.labels)
        loss.backward()
        plain_optimizer.step()
        expected.append(loss.item())
    trainer = TorchTrainer(model(), make_definition(loss=cross_entropy, optimizer=optimizer))
    torch.manual_seed(5)
    assert [trainer.train(batch) for batch in given] == expected
    found = trainer.parameters()
    for name, value in plain.named_parameters():
        np.testing.assert_array_equal(found.trainable[name], value.detach().numpy())
    np.testing.assert_array_equal(found.state["1.running_mean"], plain[1].running_mean.numpy())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_servers_with_its_description_do_the_same(optimizer: Optimizer, make_definition: Any) -> None:
    definition = make_definition(loss=cross_entropy, optimizer=optimizer)
    without_chance = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    here, served = (TorchTrainer(copy.deepcopy(without_chance), definition) for _ in range(2))
    given = batches(6)
    served.build(given[0])
    server = make_optimizer(served.optimizer_config())
    values = served.parameters().trainable
    slots = {name: server.slots(name, value) for name, value in values.items()}
    for step, batch in enumerate(given):
        here.train(batch)
        _, gradients = served.gradients(batch)
        for name, value in values.items():
            server.apply(name, value, gradients[name], slots[name], served.learning_rate(step), step + 1)
        served.set_parameters(Parameters(trainable=values))
    for name, value in here.parameters().trainable.items():
        np.testing.assert_allclose(values[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


class Partly(nn.Module):
    """With a parameter that takes no part, one that is frozen, one that is shared, and buffers of all sorts."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(3, 2)
        self.unused = nn.Linear(3, 2)
        self.frozen = nn.Linear(2, 2)
        self.frozen.requires_grad_(False)
        self.shared = self.used
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("derived", torch.ones(1), persistent=False)

    def forward(self, features: Any) -> Any:
        return self.norm(self.frozen(self.shared(features))) * self.derived


def test_parameters_and_state_are_named_by_module(make_definition: Any) -> None:
    trainer = TorchTrainer(
        Partly(), make_definition(loss=cross_entropy, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    )
    (batch,) = batches(1)
    trainer.build(batch)
    values = trainer.parameters()
    assert sorted(values.trainable) == [
        "norm.bias",
        "norm.weight",
        "unused.bias",
        "unused.weight",
        "used.bias",
        "used.weight",
    ]
    assert sorted(values.state) == [
        "frozen.bias",
        "frozen.weight",
        "norm.num_batches_tracked",
        "norm.running_mean",
        "norm.running_var",
    ]


def test_a_parameter_without_a_part_in_the_loss_has_no_gradient(make_definition: Any) -> None:
    trainer = TorchTrainer(
        Partly(), make_definition(loss=cross_entropy, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    )
    (batch,) = batches(1)
    _, gradients = trainer.gradients(batch)
    assert sorted(gradients) == ["norm.bias", "norm.weight", "used.bias", "used.weight"]


def test_values_are_copies_and_come_back(make_definition: Any) -> None:
    definition = make_definition(loss=cross_entropy, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    trainer = TorchTrainer(Partly(), definition)
    first, second = batches(2)
    trainer.train(first)
    kept = trainer.parameters()
    loss, _ = trainer.gradients(second)
    trainer.train(second)
    read_only = Parameters(
        trainable={
            n: np.frombuffer(v.tobytes(), v.dtype).reshape(v.shape) for n, v in kept.trainable.items()
        },
        state=kept.state,
    )
    trainer.set_parameters(read_only)
    again, _ = trainer.gradients(second)
    assert again == loss


class Average(nn.Module):
    """Keeps an average by putting a new tensor in the place of the old one."""

    average: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("average", torch.zeros(3))

    def forward(self, features: Any) -> Any:
        if self.training:
            self.average = 0.9 * self.average + 0.1 * features.mean(0)
        return self.layer(features - self.average)


def test_state_that_is_replaced_is_followed(make_definition: Any) -> None:
    model = Average()
    trainer = TorchTrainer(
        model, make_definition(loss=cross_entropy, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    )
    for batch in batches(2):
        trainer.train(batch)
    values = trainer.parameters()
    np.testing.assert_array_equal(values.state["average"], model.average.numpy())
    assert values.state["average"].any()
    trainer.set_parameters(Parameters(trainable=values.trainable, state={"average": np.ones(3, np.float32)}))
    assert model.average.tolist() == [1, 1, 1]


def test_lazy_modules_are_built_by_the_first_batch(make_definition: Any) -> None:
    trainer = TorchTrainer(
        nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 2)),
        make_definition(loss=cross_entropy, optimizer=lambda p: torch.optim.Adam(p, lr=0.1)),
    )
    first, second = batches(2)
    trainer.build(first)
    shapes = {name: value.shape for name, value in trainer.parameters().trainable.items()}
    assert shapes["0.weight"] == (4, 3)
    np.testing.assert_array_equal(trainer.parameters().state["1.running_mean"], 0)
    trainer.build(second)
    assert trainer.train(second) > 0


def test_a_loss_for_each_sample_is_averaged(make_definition: Any) -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        return nn.functional.cross_entropy(predictions, labels, reduction="none")

    (batch,) = batches(1)
    torch.manual_seed(0)
    linear = nn.Linear(3, 2)
    trainer = TorchTrainer(linear, make_definition(loss=loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.1)))
    expected = cross_entropy(batch.labels, linear(batch.features)).item()
    assert trainer.gradients(batch)[0] == pytest.approx(expected)


def test_an_optimizer_that_computes_the_loss_itself(make_definition: Any) -> None:
    trainer = TorchTrainer(
        nn.Linear(3, 2), make_definition(loss=cross_entropy, optimizer=lambda p: torch.optim.LBFGS(p, lr=0.5))
    )
    (batch,) = batches(1)
    losses = [trainer.train(batch) for _ in range(3)]
    assert losses[2] < losses[0]


def test_several_inputs_and_outputs(make_definition: Any) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 1), nn.Linear(2, 4)

        def forward(self, wide: Any, deep: Any) -> Any:
            return {"click": self.a(wide).squeeze(1), "topic": self.b(deep)}

    def loss(labels: Any, predictions: Any) -> Any:
        return nn.functional.binary_cross_entropy_with_logits(
            predictions["click"], labels["click"]
        ) + nn.functional.cross_entropy(predictions["topic"], labels["topic"])

    trainer = TorchTrainer(
        Wide(), make_definition(loss=loss, optimizer=functools.partial(torch.optim.Adam, lr=0.1))
    )
    batch = batch_of(
        {"wide": torch.randn(8, 3), "deep": torch.randn(8, 2)},
        {"click": torch.ones(8), "topic": torch.zeros(8, dtype=torch.int64)},
    )
    losses = [trainer.train(batch) for _ in range(30)]
    assert losses[-1] < losses[0] / 2
    outputs = trainer.predict(batch)
    assert {name: value.shape for name, value in outputs.items()} == {"click": (8,), "topic": (8, 4)}


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_is_the_one_asked_for(
    threads: int, make_definition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setenv("ELASTICDL_THREADS", str(threads))
    try:
        TorchTrainer(nn.Linear(1, 1), make_definition())
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
