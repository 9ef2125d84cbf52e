"""The ways to write `optimizer` for PyTorch, and what cannot be done on parameter servers."""

import functools
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler

from elasticdl.errors import UserError
from elasticdl.worker.torch.optimizer import make_optimizer, server_config


def of_parameters(parameters: Any) -> Any:
    return optim.Adam(parameters, lr=0.5)


def of_parameters_with_defaults(parameters: Any, lr: float = 0.5) -> Any:
    return optim.Adam(parameters, lr=lr)


def of_model(model: Any) -> Any:
    return optim.Adam(model.parameters(), lr=0.5)


def of_annotated_model(it: nn.Module) -> Any:
    return optim.Adam(it.parameters(), lr=0.5)


def of_nothing(lr: float = 0.5) -> Any:
    return functools.partial(optim.Adam, lr=lr)


def of_nothing_a_function() -> Any:
    return lambda parameters: optim.Adam(parameters, lr=0.5)


@pytest.mark.parametrize(
    "function",
    [
        of_parameters,
        of_parameters_with_defaults,
        of_model,
        of_annotated_model,
        of_nothing,
        of_nothing_a_function,
        functools.partial(optim.Adam, lr=0.5),
    ],
)
def test_ways_to_write_it(function: Any) -> None:
    model = nn.Linear(2, 1)
    made, schedule = make_optimizer(function, model)
    assert type(made) is optim.Adam
    assert made.param_groups[0]["lr"] == 0.5
    assert made.param_groups[0]["params"] == list(model.parameters())
    assert schedule is None


def test_with_a_schedule() -> None:
    def made_here(parameters: Any) -> Any:
        optimizer = optim.SGD(parameters, lr=1)
        return optimizer, lr_scheduler.StepLR(optimizer, 2)

    def made_later() -> Any:
        return functools.partial(optim.SGD, lr=1), lambda optimizer: lr_scheduler.StepLR(optimizer, 2)

    for function in (made_here, made_later):
        made, schedule = make_optimizer(function, nn.Linear(2, 1))
        assert isinstance(schedule, lr_scheduler.StepLR)
        assert schedule.optimizer is made


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda parameters, other: None, "needs 2 arguments"),
        (lambda parameters: None, "returns NoneType, which is no optimizer"),
        (
            lambda parameters: optim.SGD(nn.Linear(2, 2).parameters(), lr=1),
            "other parameters than the model's",
        ),
        (lambda parameters: (optim.SGD(parameters, lr=1), 3), "returns int, which is no schedule"),
        (
            lambda parameters: (optim.SGD(parameters, lr=1), lr_scheduler.ReduceLROnPlateau),
            "ReduceLROnPlateau, which waits for metrics",
        ),
    ],
)
def test_invalid_optimizer_is_rejected(function: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_optimizer(function, nn.Linear(2, 1))


def test_description_for_servers() -> None:
    config = server_config(optim.RMSprop([torch.ones(1)], alpha=0.5, centered=True), None)
    assert (config.name, config.flavor) == ("rmsprop", "torch")
    assert dict(config.options) == {
        "rho": 0.5,
        "epsilon": 1e-8,
        "momentum": 0.0,
        "centered": 1.0,
        "weight_decay": 0.0,
    }


def groups(**second: Any) -> Any:
    one, two = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    return optim.SGD([{"params": [one]}, {"params": [two], **second}], lr=0.1)


def test_groups_that_are_alike_are_one() -> None:
    assert server_config(groups(), None).name == "sgd"


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (groups(weight_decay=0.1), "differ in weight_decay"),
        (groups(lr=0.2), "differ in lr"),
        (optim.RAdam([torch.ones(1)]), "no optimizer RAdam; they have Adadelta, Adagrad, Adam"),
        (optim.RAdam([torch.ones(1)]), "nearest is torch.optim.NAdam"),
        (type("Mine", (optim.SGD,), {})([torch.ones(1)], lr=1), "no optimizer Mine"),
    ],
)
def test_optimizer_unsupported_by_servers_is_rejected(optimizer: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        server_config(optimizer, None)


def test_a_schedule_of_the_momentum() -> None:
    optimizer = optim.SGD([torch.ones(1)], lr=1, momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(optimizer, max_lr=1, total_steps=10)
    with pytest.raises(UserError, match="OneCycleLR also changes the momentum"):
        server_config(optimizer, schedule)
    optimizer = optim.SGD([torch.ones(1)], lr=1, momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(optimizer, max_lr=1, total_steps=10, cycle_momentum=False)
    assert server_config(optimizer, schedule).options["momentum"] == 0.9
