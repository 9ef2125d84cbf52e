"""The learning rate at any step, from a schedule of `paddle.optimizer.lr` that is made to be stepped one batch after
another.

Where the framework's own optimizer trains, the schedule is stepped after every batch. On parameter servers several
workers train together and a worker asks for the rate of the job's present step, which jumps forwards with the others'
batches and backwards when the job goes back to a checkpoint. So the schedule is stepped as far as was ever asked for,
and what it said is kept.
"""

from __future__ import annotations

import copy
from array import array
from typing import Any

import paddle

from elasticdl.errors import UserError
from elasticdl.worker.model.learning_rates import Rates


class Schedule(Rates):
    """The rate of an optimizer, with or without a schedule.

    A callback may set the rate of an optimizer without one (`optimizer.set_lr`) at any time. With one, Paddle refuses.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        rate = optimizer._learning_rate
        self._schedule = rate if isinstance(rate, paddle.optimizer.lr.LRScheduler) else None
        self._start = None if self._schedule is None else copy.deepcopy(vars(self._schedule))
        # The rates of the first steps.
        self._past = array("d", [self.present])
        self.steps = 0
        self.initial = self.read()

    def read(self) -> tuple[float, ...]:
        # With a schedule, callbacks cannot change the rate.
        return () if self._schedule is not None else (self.present,)

    def write(self, rates: tuple[float, ...]) -> None:
        for rate in rates:
            self._optimizer.set_lr(rate)

    @property
    def present(self) -> float:
        return float(self._optimizer.get_lr())

    def step(self) -> None:
        """Advances the schedule after a batch of the framework's own optimizer."""
        if self._schedule is not None:
            self._advance()

    def rate(self, step: int) -> float:
        """Returns the rate for the parameter servers, and sets it here for callbacks to see."""
        if self._schedule is None:
            return self.present
        past = self._past
        if step >= len(past):
            # Some go on from the rate they find.
            self._schedule.last_lr = past[-1]
            while len(past) <= step and self._advance():
                past.append(self.present)
        self._schedule.last_lr = past[min(step, len(past) - 1)]
        return self.present

    def resume(self, steps: int) -> None:
        """Brings the schedule to where a saved one was."""
        if self._schedule is None:
            return
        vars(self._schedule).update(copy.deepcopy(self._start or {}))
        self.steps = 0
        while self.steps < steps and self._advance():
            pass

    def _advance(self) -> bool:
        # Shards trained again after a failure make more batches than were planned for: a schedule that was made for a
        # number of steps stays at its end.
        assert self._schedule is not None
        total = getattr(self._schedule, "total_steps", None)
        if total is not None and self.steps + 1 >= total:
            return False
        self._schedule.step()
        self.steps += 1
        return True


def set_rate(optimizer: Any, rate: float) -> None:
    """Sets the rate for callbacks. Raises `UserError` where the optimizer has a schedule, whose rate cannot be set."""
    if isinstance(optimizer._learning_rate, paddle.optimizer.lr.LRScheduler):
        raise UserError(
            f"A callback sets the learning rate, and the optimizer has the schedule "
            f"{type(optimizer._learning_rate).__name__}.",
            hint="Use the callback or the schedule.",
        )
    optimizer.set_lr(rate)
