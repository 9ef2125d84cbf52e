"""Learning rates that callbacks set from epoch to epoch, in a worker that begins in the middle of a training.

Such a worker has a rate already, from a checkpoint or from others, that was made by callbacks like its own; and its
own hear now of all epochs before, to remember what they would remember (`CallbackRunner.catch_up`). A rate that they
reduce must not be reduced twice. So they begin with the rate that the training began with, and what they make of it
counts: also where the checkpoint was taken just before the end of an epoch was reported.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable


class Rates(abc.ABC):
    """The learning rates of an optimizer: one for each group of parameters, none if callbacks cannot change it."""

    # Before any batch and any callback.
    initial: tuple[float, ...] = ()

    @abc.abstractmethod
    def read(self) -> tuple[float, ...]: ...

    @abc.abstractmethod
    def write(self, rates: tuple[float, ...]) -> None: ...

    def scheduled(self) -> tuple[float, ...]:
        """Returns the rates that a schedule by batches has computed from the initial ones, without callbacks."""
        return self.initial


def rehearse(rates: Rates, events: Iterable[Callable[[], None]]) -> None:
    """Events of the past, from the rates of the beginning on. If none of them changes a rate, they stay as they are:
    then it is by batches that they change, if at all.
    """
    present = rates.read()
    rates.write(with_added(rates.initial, present))
    changed = False
    for event in events:
        before = rates.read()
        event()
        changed = changed or rates.read() != before
    if not changed:
        rates.write(present)
        return
    made = rates.read()
    together = zip(made, rates.initial, rates.scheduled(), strict=False)
    scaled = tuple(rate if then in (0.0, now) else rate * now / then for rate, then, now in together)
    rates.write(with_added(scaled, made))


def with_added(rates: tuple[float, ...], present: tuple[float, ...]) -> tuple[float, ...]:
    """These rates for the groups that were there when the training began, and the present ones for those that callbacks
    have added since: these had none at the beginning.
    """
    return rates + present[len(rates) :]
