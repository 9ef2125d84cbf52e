"""The virtual clock: delays, capacity, arrivals, ends."""

from __future__ import annotations

import math

import pytest

from elasticdl.errors import UserError
from elasticdl.simulator.engine import Simulation
from elasticdl.simulator.policies import make_policy
from elasticdl.simulator.workload import CPU, Rules, Service, Workload
from tests.simulator.builders import job, machines, of, run


def test_job_alone_takes_its_work_divided_by_its_workers() -> None:
    result = run([job("a", low=4, high=4, work=100)], "fifo")
    assert of(result, "a").completed_at == 25
    assert of(result, "a").waiting_seconds(result.end) == 0


def test_first_start_costs_the_resize_delay() -> None:
    rules = Rules(interval=10.0, reacts=True, reaction=0.0, resize_cost=30.0)
    assert of(run([job("a", work=100)], "fifo", rules=rules), "a").completed_at == 130


def test_pods_run_only_after_their_start_time() -> None:
    rules = Rules(interval=10.0, reacts=True, reaction=0.0, resize_cost=0.0, pod_start=7.0)
    result = run([job("a", work=100)], "fifo", rules=rules)
    assert of(result, "a").started_at == 7
    assert of(result, "a").completed_at == 107


def test_fixed_interval_notices_an_arrival_at_the_next_plan() -> None:
    rules = Rules(interval=60.0, resize_cost=30.0)
    one = of(run([job("a", at=70.0, work=100)], "fifo", rules=rules), "a")
    assert one.started_at == 120
    assert one.completed_at == 250


def test_room_of_a_finished_job_is_free_for_the_next() -> None:
    result = run([job("a", high=8, low=8, work=80), job("b", at=1, high=8, low=8, work=80)], "fifo")
    assert of(result, "a").completed_at == 10
    assert of(result, "b").completed_at == 20


@pytest.mark.parametrize("policy", ["elasticdl", "edl", "fifo", "static", "tiresias"])
def test_no_policy_uses_more_than_there_is(policy: str) -> None:
    jobs = [job(f"j{n}", at=7.0 * n, low=1, high=6, cpus=2, ps=1, work=200) for n in range(6)]
    service = Service(name="web", requests={CPU: 1000}, targets=((0.0, 2), (40.0, 8), (90.0, 1)))
    rules = Rules(interval=5.0, reacts=True, resize_cost=3.0, pod_start=2.0, pod_stop=2.0)
    result = run(jobs, policy, count=4, cpus=6, rules=rules, services=(service,), horizon=400.0)
    assert max(sample.utilisation for sample in result.samples) <= 1.0
    assert result.samples


@pytest.mark.parametrize("policy", ["elasticdl", "edl", "fifo", "static"])
def test_limit_of_pods_limits_the_size(policy: str) -> None:
    # The service takes one of the four places.
    service = Service(name="web", requests={CPU: 1000}, targets=((0.0, 1),))
    jobs = [job("a", low=3, high=3, work=90), job("b", at=1, low=3, high=3, work=90)]
    result = run(jobs, policy, count=1, cpus=50, pods=4, services=(service,), horizon=500.0)
    assert of(result, "a").completed_at == pytest.approx(30, abs=11)
    started = of(result, "b").started_at
    assert started is not None
    assert started >= 30


def test_job_with_more_pods_than_the_machines_take_is_reported() -> None:
    result = run([job("a", low=5, high=5)], "elasticdl", count=2, cpus=50, pods=2)
    assert "the empty machines hold 4" in of(result, "a").rejected


@pytest.mark.parametrize("policy", ["elasticdl", "edl", "fifo", "static", "tiresias"])
def test_same_seed_gives_the_same_result(policy: str) -> None:
    jobs = [job(f"j{n}", at=5.0 * n, low=1, high=5, cpus=2, work=150) for n in range(5)]
    rules = Rules(interval=5.0, reacts=True, resize_cost=1.0, pod_start=1.0, start_jitter=3.0, pod_stop=1.0)
    first = run(jobs, policy, count=3, rules=rules, seed=4, horizon=600.0)
    second = run(jobs, policy, count=3, rules=rules, seed=4, horizon=600.0)
    assert first.jobs == second.jobs
    assert first.samples == second.samples


def test_job_larger_than_the_cluster_is_reported_and_blocks_no_other() -> None:
    result = run([job("huge", low=50, high=50), job("small", at=1, work=10)], "fifo")
    assert "larger than the cluster" in of(result, "huge").rejected
    assert of(result, "small").completed_at == 11
    assert result.summary().rejected == 1


def test_jobs_that_can_never_start_end_the_simulation_as_stuck() -> None:
    # Half of each gang is placed by the cluster's scheduler, and neither job can go on.
    rules = Rules(interval=10.0, reacts=True, resize_cost=0.0)
    jobs = [job("a", low=3, high=3, ps=6, work=100), job("b", low=3, high=3, ps=6, work=100)]
    result = run(jobs, "static", rules=rules)
    assert result.summary().stuck == 2
    assert result.summary().completed == 0


def test_service_reaches_its_target_when_there_is_room() -> None:
    service = Service(name="web", requests={CPU: 1000}, targets=((0.0, 2), (50.0, 6)))
    result = run([job("a", work=20)], "fifo", services=(service,), horizon=100.0)
    at_end = result.samples[-1]
    assert (at_end.service_running, at_end.service_target) == (6, 6)


def test_horizon_ends_an_endless_job() -> None:
    result = run([job("a", work=math.inf)], "fifo", horizon=123.0)
    assert result.end == 123
    assert of(result, "a").completed_at is None


def test_unschedulable_pods_are_retried_with_backoff() -> None:
    rules = Rules(interval=1000.0, reacts=True, resize_cost=0.0, scheduler_backoff=60.0)
    jobs = [job("a", low=8, high=8, work=8 * 20), job("b", at=1.0, low=8, high=8, work=80)]
    result = run(jobs, "static", rules=rules)
    # Tried at 1, 2, 4, 8, 16 and 32: the room that is free at 20 is found at 33.
    assert of(result, "b").started_at == pytest.approx(33, abs=1)


def test_running_instances_at_the_start_are_kept() -> None:
    one = job("a", low=2, high=2, work=100)
    resumed = type(one)(**{**vars(one), "initial": {"worker": {"m1": 2}}})
    result = run([resumed], "fifo", rules=Rules(interval=10.0, reacts=True, resize_cost=30.0))
    assert of(result, "a").completed_at == 50
    assert of(result, "a").resizes == 0


def test_empty_cluster_is_an_error() -> None:
    workload = Workload(name="none", machines=(), jobs=(job("a"),))
    with pytest.raises(UserError, match="no machines"):
        Simulation(workload, make_policy("fifo"))


def test_load_divides_arrival_times() -> None:
    workload = Workload(name="w", machines=machines(1, 1), jobs=(job("a", at=100.0),))
    assert workload.with_load(2.0).jobs[0].submitted_at_seconds == 50
