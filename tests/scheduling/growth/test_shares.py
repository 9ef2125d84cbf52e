"""Fair shares of jobs without measurements, quotas and the load target."""

from __future__ import annotations

import pytest

from elasticdl.scheduling.cluster import Quota
from elasticdl.scheduling.decisions import Hold, Reject
from elasticdl.scheduling.planner import plan
from elasticdl.scheduling.planner_settings import PlannerSettings
from elasticdl.scheduling.projection import apply_plan
from tests.scheduling.builders import decision, foreign, job, machines, pods_of, sizes, state, workers


def test_equal_jobs_get_equal_shares() -> None:
    jobs = tuple(job(name, workers(1, 60, cpu=1)) for name in "abc")
    assert sorted(sizes(plan(state(machines(3, cpu=4), jobs))).values()) == [4, 4, 4]


def test_shares_are_proportional_to_weights() -> None:
    jobs = (job("a", workers(1, 60, cpu=1)), job("b", workers(1, 60, cpu=1), weight=3.0))
    assert sizes(plan(state(machines(2, cpu=8), jobs))) == {"a": 4, "b": 12}


def test_shares_count_the_dominant_resource() -> None:
    jobs = (job("a", workers(1, 60, cpu=1)), job("b", workers(1, 60, cpu=3)))
    assert sizes(plan(state(machines(1, cpu=24), jobs))) == {"a": 12, "b": 4}


def test_capacity_beyond_maximum_goes_to_other_jobs() -> None:
    jobs = (job("a", workers(1, 2, cpu=1)), job("b", workers(1, 60, cpu=1)))
    assert sizes(plan(state(machines(1, cpu=12), jobs))) == {"a": 2, "b": 10}


def test_running_job_above_its_share_gives_to_a_running_job_below() -> None:
    first, second = job("a", workers(1, 60, cpu=1)), job("b", workers(1, 60, cpu=1))
    pods = (*pods_of(first, "worker", {"m0": 7}), *pods_of(second, "worker", {"m0": 1}))
    assert sizes(plan(state(machines(1, cpu=8), (first, second), pods))) == {"a": 4, "b": 4}


def test_difference_of_one_instance_moves_nothing() -> None:
    first, second = job("a", workers(1, 60, cpu=1)), job("b", workers(1, 60, cpu=1))
    pods = (*pods_of(first, "worker", {"m0": 5}), *pods_of(second, "worker", {"m0": 4}))
    result = plan(state(machines(1, cpu=9), (first, second), pods))
    assert result.changes == ()


def test_job_of_higher_priority_grows_first() -> None:
    jobs = (job("a", workers(1, 6, cpu=1)), job("b", workers(1, 6, cpu=1), priority=1))
    assert sizes(plan(state(machines(1, cpu=8), jobs))) == {"a": 2, "b": 6}


def test_jobs_grow_into_all_free_room() -> None:
    """Idle bookkeeping with the wrong sign would see used machines as free, or free ones as used."""
    jobs = (job("a", workers(1, 99, cpu=2)),)
    pods = (foreign("f", "m0", cpu=5), foreign("g", "m1", cpu=1))
    assert sizes(plan(state(machines(2, cpu=8), jobs, pods))) == {"a": 4}


@pytest.mark.parametrize("target", [0.5, 0.9, 0.97])
def test_load_target_below_one_settles_with_gpus(target: float) -> None:
    """A target that no whole number of GPUs meets must not make a job grow and shrink in turns."""
    options = PlannerSettings(max_load_desired=target)
    before = state(machines(4, gpu=4), (job("a", workers(1, 16, gpu=1), whole_machines=False),))
    after = apply_plan(before, plan(before, options))
    assert sizes(plan(after, options)) == {"a": int(16 * target)}
    assert plan(after, options).changes == ()


def test_load_above_the_target_shrinks_no_job() -> None:
    demand = job("a", workers(1, 8, cpu=1))
    pods = (*pods_of(demand, "worker", {"m0": 6}), foreign("f", "m0", cpu=2))
    result = plan(state(machines(1, cpu=8), (demand,), pods), PlannerSettings(max_load_desired=0.5))
    assert isinstance(decision(result, "a"), Hold)


def test_quota_limits_growth_and_admission() -> None:
    jobs = (
        job("a", workers(1, 9, cpu=1), namespace="red"),
        job("b", workers(3, 9, cpu=1), namespace="red", submitted_at_seconds=5.0),
    )
    result = plan(state(machines(1, cpu=16), jobs, quotas=(Quota(namespace="red", limit={"cpu": 3}),)))
    assert decision(result, "a", "red").size == 3
    assert decision(result, "b", "red").size == 0


def test_minimum_above_the_quota_is_rejected() -> None:
    jobs = (job("a", workers(4, 9, cpu=1), namespace="red"),)
    result = plan(state(machines(1, cpu=16), jobs, quotas=(Quota(namespace="red", limit={"cpu": 3}),)))
    made = decision(result, "a", "red")
    assert isinstance(made, Reject)
    assert "red" in made.reason


def test_idle_guarantee_is_borrowed_and_given_back() -> None:
    quotas = (Quota(namespace="red", guaranteed={"cpu": 6}), Quota(namespace="blue", guaranteed={"cpu": 2}))
    blue = job("b", workers(1, 8, cpu=1), namespace="blue", priority=1)
    alone = state(machines(1, cpu=8), (blue,), quotas=quotas)
    assert decision(plan(alone), "b", "blue").size == 8
    red = job("r", workers(1, 8, cpu=1), namespace="red")
    both = state(machines(1, cpu=8), (blue, red), pods_of(blue, "worker", {"m0": 8}), quotas)
    result = plan(both)
    assert decision(result, "r", "red").size == 6
    assert decision(result, "b", "blue").size == 2
