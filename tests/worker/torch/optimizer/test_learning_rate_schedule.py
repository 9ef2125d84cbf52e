"""A schedule gives the rate of any step, in any order, as if it had been stepped there."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as schedules

from elasticdl.worker.torch.learning_rate_schedule import Schedule

SCHEDULES: list[Callable[[Any], Any]] = [
    lambda o: schedules.LambdaLR(o, lambda step: 1 / (1 + step)),
    lambda o: schedules.MultiplicativeLR(o, lambda step: 0.9),
    lambda o: schedules.StepLR(o, 3),
    lambda o: schedules.MultiStepLR(o, [2, 5, 11]),
    lambda o: schedules.ConstantLR(o, factor=0.5, total_iters=4),
    lambda o: schedules.LinearLR(o, start_factor=0.1, total_iters=7),
    lambda o: schedules.ExponentialLR(o, 0.8),
    lambda o: schedules.CosineAnnealingLR(o, T_max=9),
    lambda o: schedules.CosineAnnealingWarmRestarts(o, T_0=4),
    lambda o: schedules.PolynomialLR(o, total_iters=10, power=2),
    lambda o: schedules.CyclicLR(o, 0.01, 1.0, step_size_up=3, cycle_momentum=False),
    lambda o: schedules.OneCycleLR(o, max_lr=1.0, total_steps=20, cycle_momentum=False),
    lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=3), schedules.ExponentialLR(o, 0.9)], milestones=[3]
    ),
    lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, 0.1, total_iters=3), schedules.ExponentialLR(o, 0.9)], optimizer=o
    ),
]


def made(make: Callable[[Any], Any]) -> tuple[Any, Any]:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optimizer, make(optimizer)


def plain(make: Callable[[Any], Any], steps: int) -> list[float]:
    """The rates that a plain loop would use."""
    optimizer, schedule = made(make)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
            schedule.step()
    return rates


@pytest.mark.parametrize("make", SCHEDULES)
def test_rates_by_step_in_any_order(make: Callable[[Any], Any]) -> None:
    expected = plain(make, 18)
    schedule = Schedule(*made(make))
    for step in [0, 1, 2, 9, 10, 5, 17, 0, 16]:
        assert schedule.rate(step) == pytest.approx(expected[step]), step


@pytest.mark.parametrize("make", SCHEDULES)
def test_stepping_is_that_of_pytorch(make: Callable[[Any], Any]) -> None:
    schedule = Schedule(*made(make))
    found = []
    for _ in range(18):
        found.append(schedule.present)
        schedule.step()
    assert found == plain(make, 18)


@pytest.mark.parametrize("make", SCHEDULES)
@pytest.mark.parametrize("already", [0, 12])
def test_going_on_from_a_saved_place(make: Callable[[Any], Any], already: int) -> None:
    expected = plain(make, 18)
    optimizer, torch_schedule = made(make)
    schedule = Schedule(optimizer, torch_schedule)
    for _ in range(already):
        schedule.step()
    optimizer.param_groups[0]["lr"] = expected[7]
    schedule.resume(7)
    found = []
    for _ in range(7, 18):
        found.append(schedule.present)
        schedule.step()
    assert found == pytest.approx(expected[7:])


def test_more_steps_than_were_planned() -> None:
    make = SCHEDULES[11]
    schedule = Schedule(*made(make))
    for _ in range(50):
        schedule.step()
    last = plain(make, 20)[-1]
    assert schedule.present == last
    assert Schedule(*made(make)).rate(50) == last


def test_without_a_schedule_the_rate_is_what_callbacks_set() -> None:
    optimizer = torch.optim.SGD([torch.ones(1)], lr=0.4)
    schedule = Schedule(optimizer, None)
    assert schedule.rate(3) == 0.4
    optimizer.param_groups[0]["lr"] = 0.1
    assert schedule.rate(4) == 0.1


@pytest.mark.parametrize("make", [SCHEDULES[6], SCHEDULES[1]])
def test_with_a_schedule_a_change_by_callbacks_is_a_factor(make: Callable[[Any], Any]) -> None:
    expected = plain(make, 10)
    optimizer, torch_schedule = made(make)
    schedule = Schedule(optimizer, torch_schedule)
    assert schedule.rate(3) == pytest.approx(expected[3])
    optimizer.param_groups[0]["lr"] /= 2
    assert schedule.rate(3) == pytest.approx(expected[3] / 2)
    assert schedule.rate(8) == pytest.approx(expected[8] / 2)
    assert schedule.rate(5) == pytest.approx(expected[5] / 2)
