"""What each policy does with the same few jobs."""

from __future__ import annotations

import pytest

from elasticdl.errors import UserError
from elasticdl.simulator.policies import make_policy
from elasticdl.simulator.workload import CPU, Rules, Service
from tests.simulator.builders import job, of, run

TICKS = Rules(interval=10.0, resize_cost=0.0)


def test_fifo_holds_small_jobs_behind_a_large_one() -> None:
    jobs = [job("a", low=6, high=6, work=60), job("b", at=1, low=8, high=8, work=80), job("c", at=2, work=1)]
    result = run(jobs, "fifo")
    started = {name: of(result, name).started_at for name in "abc"}
    assert started == {"a": 0, "b": 10, "c": 20}


def test_fifo_places_a_gang_on_actual_machines() -> None:
    # Two machines with 1 free CPU each do not hold a worker of 2 CPUs.
    jobs = [job("a", low=2, high=2, cpus=3, work=20), job("b", at=1, cpus=2, work=2)]
    assert of(run(jobs, "fifo"), "b").started_at == 10


def test_static_binds_pods_one_by_one() -> None:
    result = run([job("a", low=1, high=12, requested=12, work=80)], "static")
    assert of(result, "a").size_at(1) == 8
    assert of(result, "a").completed_at == 10


def test_tiresias_demotes_a_job_after_sixteen_gpu_hours() -> None:
    jobs = [
        job("long", low=8, high=8, work=8 * 3600 * 4.0),
        job("short", at=3600, low=8, high=8, work=8 * 600.0),
    ]
    rules = Rules(interval=60.0, resize_cost=30.0)
    result = run(jobs, "tiresias", rules=rules)
    # 16 hours of GPU time are two hours with eight: then the younger job goes first.
    assert of(result, "short").started_at == pytest.approx(7260, abs=61)
    assert of(result, "long").resizes == 1


def test_tiresias_lets_a_job_pass_that_still_fits() -> None:
    jobs = [
        job("a", low=6, high=6, work=600),
        job("b", low=4, high=4, work=40),
        job("c", low=2, high=2, work=20),
    ]
    result = run(jobs, "tiresias", rules=TICKS)
    assert of(result, "c").started_at == 10
    assert (of(result, "b").started_at or 0) > 100


def test_edl_counts_pods_that_do_not_fit_anywhere() -> None:
    # 8 CPUs, workers of 3: one per machine fits, and 97 % of the sum allows no third.
    result = run([job("a", low=1, high=9, cpus=3, work=1000)], "edl", horizon=60.0)
    assert of(result, "a").size_at(50) == 2


def test_edl_shares_by_fulfilment_among_jobs_that_come_together() -> None:
    jobs = [job("a", low=1, high=8, work=1e6), job("b", low=1, high=8, work=1e6)]
    result = run(jobs, "edl", horizon=300.0)
    assert abs(of(result, "a").size_at(290) - of(result, "b").size_at(290)) <= 1


def test_edl_gives_a_later_job_no_more_than_its_minimum() -> None:
    jobs = [job("a", low=1, high=8, work=1e6), job("b", at=30.0, low=1, high=8, work=1e6)]
    result = run(jobs, "edl", horizon=300.0)
    assert (of(result, "a").size_at(290), of(result, "b").size_at(290)) == (6, 1)


def test_edl_leaves_a_job_without_trainers_that_holds_its_servers() -> None:
    # The sum says that there is room, no machine has it.
    jobs = [
        job("a", low=1, high=1, cpus=3, ps=1, ps_cpus=3, work=1e6),
        job("b", at=10, cpus=2, ps=1, work=1e6),
    ]
    result = run(jobs, "edl", horizon=300.0)
    assert of(result, "b").started_at is None


def test_planner_admits_all_or_nothing() -> None:
    jobs = [
        job("a", low=1, high=1, cpus=3, ps=1, ps_cpus=3, work=100),
        job("b", at=10, cpus=2, ps=1, work=10),
    ]
    result = run(jobs, "elasticdl")
    assert of(result, "b").first_instance_at == of(result, "b").started_at == pytest.approx(101, abs=11)


def test_planner_shrinks_a_job_for_a_new_one() -> None:
    jobs = [job("a", low=1, high=8, work=10_000), job("b", at=60.0, low=2, high=8, work=100)]
    result = run(jobs, "elasticdl", rules=Rules(interval=10.0, reacts=True, reaction=1.0, resize_cost=1.0))
    assert of(result, "a").size_at(50) == 8
    assert of(result, "b").waiting_seconds(result.end) <= 3
    assert of(result, "a").size_at(70) < 8


def test_planner_makes_room_for_a_service_of_higher_priority() -> None:
    service = Service(name="web", requests={CPU: 2000}, targets=((0.0, 0), (50.0, 3)), priority=100)
    rules = Rules(interval=10.0, reacts=True, reaction=1.0, resize_cost=0.0, pod_start=1.0, pod_stop=1.0)
    jobs = [job("a", low=1, high=8, work=10_000)]
    result = run(jobs, "elasticdl", rules=rules, services=(service,), horizon=100.0)
    at_target = [sample.at for sample in result.samples if sample.at >= 50 and sample.service_running == 3]
    assert at_target
    assert at_target[0] <= 55
    assert of(result, "a").size_at(90) == 2


def test_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean tiresias"):
        make_policy("tiresas")
