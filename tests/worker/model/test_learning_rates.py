"""What callbacks make of a rate from epoch to epoch is made once, whatever rate a worker begins with."""

from collections.abc import Callable

import pytest

from elasticdl.worker.model.learning_rates import Rates, rehearse


class Numbers(Rates):
    def __init__(
        self, initial: tuple[float, ...], present: tuple[float, ...], scheduled: tuple[float, ...]
    ) -> None:
        self.initial = initial
        self.present = present
        self._scheduled = scheduled

    def read(self) -> tuple[float, ...]:
        return self.present

    def write(self, rates: tuple[float, ...]) -> None:
        self.present = rates

    def scheduled(self) -> tuple[float, ...]:
        return self._scheduled


@pytest.fixture
def rates() -> Callable[..., Numbers]:
    def make(present: float, initial: float = 0.8, scheduled: float | None = None) -> Numbers:
        return Numbers((initial,), (present,), (initial if scheduled is None else scheduled,))

    return make


def halving(rates: Numbers) -> Callable[[], None]:
    return lambda: rates.write((rates.read()[0] / 2,))


@pytest.mark.parametrize("present", [0.8, 0.4, 0.2, 0.1])
def test_same_rate_whatever_there_was(rates: Callable[..., Numbers], present: float) -> None:
    some = rates(present)
    rehearse(some, [halving(some), lambda: None, halving(some)])
    assert some.read() == (0.2,)


def test_rate_that_no_event_changes_stays(rates: Callable[..., Numbers]) -> None:
    some = rates(0.123)
    rehearse(some, [lambda: None, lambda: None])
    assert some.read() == (0.123,)


def test_rate_that_is_back_where_it_began(rates: Callable[..., Numbers]) -> None:
    some = rates(0.123)
    rehearse(some, [halving(some), lambda: some.write((0.8,))])
    assert some.read() == (0.8,)


def test_schedule_by_batches_goes_on_from_where_it_was(rates: Callable[..., Numbers]) -> None:
    some = rates(0.05, scheduled=0.1)
    rehearse(some, [halving(some)])
    assert some.read() == pytest.approx((0.05,))


def test_events_see_the_rate_of_their_time(rates: Callable[..., Numbers]) -> None:
    some, seen = rates(0.2), []
    rehearse(some, [lambda: seen.append(some.read()), halving(some), lambda: seen.append(some.read())])
    assert seen == [(0.8,), (0.4,)]


def test_nothing_to_change() -> None:
    none = Numbers((), (), ())
    rehearse(none, [lambda: None])
    assert none.read() == ()
