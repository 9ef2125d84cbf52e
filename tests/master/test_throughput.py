"""The throughput of each worker, over a recent window."""

from __future__ import annotations

from elasticdl.master.throughput import WorkerRates


def test_rates_are_of_each_worker() -> None:
    rates = WorkerRates()
    for second in range(5):
        rates.add("worker-0", float(second), 100)
        rates.add("worker-1", float(second), 10)
    assert rates.per_second("worker-0", 5.0) == 100.0
    assert rates.per_second("worker-1", 5.0) == 10.0


def test_worker_that_has_never_reported_has_no_rate() -> None:
    assert WorkerRates().per_second("ps-0", 1.0) is None


def test_rate_of_a_worker_that_reports_no_more_falls_to_zero() -> None:
    rates = WorkerRates()
    rates.add("worker-0", 1.0, 100)
    assert rates.per_second("worker-0", 20.0) == 0.0


def test_ended_workers_are_forgotten() -> None:
    rates = WorkerRates()
    rates.add("worker-0", 1.0, 100)
    rates.add("worker-1", 1.0, 100)
    rates.keep(["worker-1", "ps-0"])
    assert rates.per_second("worker-0", 2.0) is None
    assert rates.per_second("worker-1", 2.0) == 100.0
