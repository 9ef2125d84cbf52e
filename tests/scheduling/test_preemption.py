"""Shrink before evict: who releases instances for a pod of higher priority, and where."""

from __future__ import annotations

from elasticdl.scheduling.decisions import Hold, Preempt, Shrink
from elasticdl.scheduling.planner import plan
from elasticdl.scheduling.planner_settings import PlannerSettings
from tests.scheduling.builders import decision, fixed, foreign, job, machines, pods_of, sizes, state, workers


def test_pod_of_higher_priority_shrinks_a_job_on_the_machine_where_it_helps() -> None:
    demand = job("a", fixed("ps", 1, cpu=6), workers(1, 4, cpu=2))
    pods = (
        *pods_of(demand, "ps", {"m0": 1}),
        *pods_of(demand, "worker", {"m0": 1, "m1": 3}),
        foreign("big", "m1", cpu=2),
        foreign("urgent", priority=5, cpu=4),
    )
    result = plan(state(machines(2, cpu=8), (demand,), pods))
    made = decision(result, "a")
    assert isinstance(made, Shrink)
    assert result.reserved == {"other/urgent": "m1"}
    assert made.victims == ("default/a-worker-2", "default/a-worker-3")
    assert "other/urgent" in made.reason


def test_pod_of_equal_priority_shrinks_no_job() -> None:
    demand = job("a", workers(1, 8, cpu=1))
    pods = (*pods_of(demand, "worker", {"m0": 8}), foreign("f", cpu=2))
    result = plan(state(machines(1, cpu=8), (demand,), pods))
    assert isinstance(decision(result, "a"), Hold)


def test_job_that_loses_least_releases_first() -> None:
    large, small = job("large", workers(1, 6, cpu=1)), job("small", workers(1, 2, cpu=1))
    pods = (
        *pods_of(large, "worker", {"m0": 6}),
        *pods_of(small, "worker", {"m0": 2}),
        foreign("f", priority=1, cpu=2),
    )
    assert sizes(plan(state(machines(1, cpu=8), (large, small), pods))) == {"large": 4, "small": 2}


def test_victims_are_chosen_by_place_not_by_count() -> None:
    """Releasing two pods of one CPU on different machines does not make room for one pod of two CPUs."""
    demand = job("a", workers(1, 8, cpu=1))
    pods = (
        *pods_of(demand, "worker", {"m0": 4, "m1": 4}),
        foreign("f", priority=1, cpu=2),
    )
    result = plan(state(machines(2, cpu=4), (demand,), pods))
    made = decision(result, "a")
    assert isinstance(made, Shrink)
    machine = result.reserved["other/f"]
    assert {victim.rpartition("-")[2] for victim in made.victims} == (
        {"2", "3"} if machine == "m0" else {"6", "7"}
    )


def test_several_jobs_on_one_machine_release_together() -> None:
    one, two = job("one", workers(1, 2, cpu=1)), job("two", workers(1, 2, cpu=1))
    pods = (
        *pods_of(one, "worker", {"m0": 2}),
        *pods_of(two, "worker", {"m0": 2}),
        foreign("f", priority=1, cpu=2),
    )
    assert sizes(plan(state(machines(1, cpu=4), (one, two), pods))) == {"one": 1, "two": 1}


def test_job_at_minimum_stops_only_when_shrinking_is_not_enough() -> None:
    low, lower = job("low", workers(2, 4, cpu=1), priority=1), job("lower", workers(2, 4, cpu=1))
    pods = (
        *pods_of(low, "worker", {"m0": 4}),
        *pods_of(lower, "worker", {"m0": 4}),
        foreign("f", priority=5, cpu=4),
    )
    assert sizes(plan(state(machines(1, cpu=8), (low, lower), pods))) == {"low": 2, "lower": 2}
    bigger = (*pods[:-1], foreign("f", priority=5, cpu=6))
    result = plan(state(machines(1, cpu=8), (low, lower), bigger))
    assert sizes(result) == {"low": 2, "lower": 0}
    assert isinstance(decision(result, "lower"), Preempt)


def test_preemption_can_be_switched_off() -> None:
    demand = job("a", workers(2, 4, cpu=1))
    pods = (*pods_of(demand, "worker", {"m0": 4}), foreign("f", priority=5, cpu=4))
    result = plan(state(machines(1, cpu=4), (demand,), pods), PlannerSettings(preempt=False))
    assert sizes(result)["a"] >= 2


def test_hopeless_pod_makes_no_job_shrink() -> None:
    demand = job("a", workers(1, 4, cpu=1))
    pods = (*pods_of(demand, "worker", {"m0": 4}), foreign("f", priority=5, cpu=9))
    assert isinstance(decision(plan(state(machines(1, cpu=4), (demand,), pods)), "a"), Hold)


def test_waiting_job_of_higher_priority_stops_the_youngest_of_the_lowest() -> None:
    old = job("old", workers(1, 1, cpu=4), submitted_at_seconds=1.0)
    young = job("young", workers(1, 1, cpu=4), submitted_at_seconds=2.0)
    urgent = job("urgent", workers(1, 1, cpu=4), priority=1, submitted_at_seconds=3.0)
    pods = (*pods_of(old, "worker", {"m0": 1}), *pods_of(young, "worker", {"m0": 1}))
    assert sizes(plan(state(machines(1, cpu=8), (old, young, urgent), pods))) == {
        "old": 1,
        "young": 0,
        "urgent": 1,
    }


def test_releases_that_make_room_for_several_pods_are_preferred() -> None:
    """Two trainers of 5 CPUs leave a machine of 12 CPUs to three servers of 4, without a hole."""
    running = job("a", workers(1, 6, cpu=5))
    waiting = job("b", fixed("ps", 3, cpu=4), submitted_at_seconds=9.0)
    result = plan(
        state(
            machines(3, cpu=12), (running, waiting), pods_of(running, "worker", {"m0": 2, "m1": 2, "m2": 2})
        )
    )
    assert sizes(result) == {"a": 4, "b": 3}
    assert list(decision(result, "b").placement["ps"].values()) == [3]


def test_many_small_instances_give_way_to_one_large_pod() -> None:
    running = job("a", workers(1, 40, cpu=1))
    waiting = job("b", fixed("ps", 2, cpu=12), submitted_at_seconds=9.0)
    result = plan(
        state(machines(2, cpu=20), (running, waiting), pods_of(running, "worker", {"m0": 20, "m1": 20}))
    )
    assert sizes(result)["b"] == 2
