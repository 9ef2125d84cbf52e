"""The learning rate at any step, from a schedule that was made to be stepped one batch after another.

Where the framework's own optimizer trains, the schedule is stepped after every batch, as PyTorch has it. On
parameter servers several workers train together and a worker asks for the rate of the job's present step,
which jumps forwards with the others' batches and backwards when the job goes back to a checkpoint. Schedules
with a formula are asked for the value; the others are stepped, and what they said is kept.
"""

from __future__ import annotations

import copy
import warnings
from array import array
from typing import Any

import torch

from elasticdl.worker.model.learning_rates import Rates, with_added


class Schedule(Rates):
    """The rates of an optimizer, with or without a schedule of torch.optim.lr_scheduler.

    A callback may set the rate of the optimizer (`param_groups[...]["lr"]`) at any time. Without a schedule that
    is the rate from then on; with one, for parameter servers, the change stays as a factor on what it says.
    """

    def __init__(self, optimizer: Any, schedule: Any) -> None:
        self._optimizer = optimizer
        self._schedule = schedule
        self._start = None if schedule is None else copy.deepcopy(schedule.state_dict())
        self._factor = 1.0
        self._written = self.present
        # The rates of the first steps, for schedules that can only be stepped.
        self._past = array("d", [self._written])
        self.steps = 0
        self.initial = self._scheduled = self.read()

    def read(self) -> tuple[float, ...]:
        return tuple(float(group["lr"]) for group in self._optimizer.param_groups)

    def write(self, rates: tuple[float, ...]) -> None:
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def scheduled(self) -> tuple[float, ...]:
        return self._scheduled

    @property
    def present(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    def step(self) -> None:
        """Advances the schedule after a batch of the framework's own optimizer."""
        if self._schedule is not None:
            self._advance()

    def rate(self, step: int) -> float:
        """Returns the rate for the parameter servers, and sets it here for callbacks to see."""
        if self._schedule is None:
            return self.present
        if self._written and self.present != self._written:
            self._factor *= self.present / self._written
        scheduled = self._by_formula(step)
        if scheduled is None:
            scheduled = self._by_stepping(step)
        self._set(scheduled * self._factor)
        self._written = self.present
        return self._written

    def resume(self, steps: int) -> None:
        """Brings the schedule to where a saved one was. The rate itself is restored with the optimizer."""
        if self._schedule is None:
            return
        rates = self.read()
        self.write(with_added(self.initial, rates))
        self._schedule.load_state_dict(copy.deepcopy(self._start))
        self.steps = 0
        if self._by_formula(0) is None:
            while self.steps < steps and self._advance():
                pass
        else:
            # These depend on nothing but the number and the present rate.
            self._schedule.last_epoch = self.steps = steps
            self._schedule._step_count = steps + 1
            made = self._by_formula(steps) or 0.0
            first = self.initial[0]
            scaled = tuple(rate * made / first if first else made for rate in self.initial)
            self.write(with_added(scaled, rates))
        self._scheduled = self.read()[: len(self.initial)]
        self.write(rates)

    def _advance(self) -> bool:
        # Shards trained again after a failure make more batches than were planned for: a schedule that was
        # made for a number of steps stays at its end.
        total = getattr(self._schedule, "total_steps", None)
        if total is not None and self.steps + 1 >= total:
            return False
        with warnings.catch_warnings():
            # On parameter servers the optimizer here is never stepped, which PyTorch warns about.
            warnings.simplefilter("ignore")
            self._schedule.step()
        self.steps += 1
        return True

    def _by_formula(self, step: int) -> float | None:
        schedule = self._schedule
        if type(schedule) is torch.optim.lr_scheduler.LambdaLR:
            return float(schedule.base_lrs[0] * schedule.lr_lambdas[0](step))
        formula = getattr(schedule, "_get_closed_form_lr", None)
        if formula is None:
            return None
        before = schedule.last_epoch
        schedule.last_epoch = step
        try:
            return float(formula()[0])
        finally:
            schedule.last_epoch = before

    def _by_stepping(self, step: int) -> float:
        past = self._past
        if step >= len(past):
            # Some go on from the rate they find; that is theirs, without what callbacks made of it.
            self._set(past[-1])
            while len(past) <= step and self._advance():
                past.append(self.present)
        return past[min(step, len(past) - 1)]

    def _set(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate
