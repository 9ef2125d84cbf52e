"""Work in the background: one at a time, in order, and errors are raised to the thread that submitted it."""

import threading

import pytest

from elasticdl.worker.model.background_exchange import Exchange


def test_one_at_a_time() -> None:
    exchange, gate, done = Exchange(), threading.Event(), []

    def first() -> None:
        gate.wait()
        done.append("first")

    exchange.give(first)
    assert done == []
    gate.set()
    exchange.give(lambda: done.append("second"))
    assert done[0] == "first"
    exchange.settle()
    assert done == ["first", "second"]
    exchange.close()


def test_error_is_raised_once_to_the_waiting_caller() -> None:
    nudged = threading.Event()
    exchange = Exchange(nudge=nudged.set)

    def fail() -> None:
        raise ValueError("no")

    exchange.give(fail)
    assert nudged.wait(60)
    failed = [exchange.failed]
    with pytest.raises(ValueError, match="no"):
        exchange.give(lambda: None)
    failed.append(exchange.failed)
    assert failed == [True, False]
    exchange.settle()
    exchange.close()


def test_close_waits_for_running_work() -> None:
    exchange, done = Exchange(), []
    exchange.give(lambda: done.append(1))
    exchange.close()
    assert done == [1]
