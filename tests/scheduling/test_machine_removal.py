"""Cordoned, draining and spot machines: what is planned on them, and who leaves them first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticdl.scheduling.cluster import Machine
from elasticdl.scheduling.decisions import Grow, Hold, Move, Shrink
from elasticdl.scheduling.planner import plan
from elasticdl.scheduling.projection import apply_plan
from tests.scheduling.builders import decision, fixed, foreign, job, machines, pods_of, sizes, state, workers


def one_of(flag: str, count: int = 2, **allocatable: int) -> tuple[Machine, ...]:
    """Machines, of which the first is such a one."""
    first, *others = machines(count, **allocatable)
    return (replace(first, **{flag: True}), *others)  # type: ignore[arg-type]


@pytest.mark.parametrize("flag", ["is_cordoned", "is_draining"])
def test_room_on_a_machine_that_takes_no_pods_is_not_counted(flag: str) -> None:
    demand = job("a", workers(1, 8, cpu=1))
    assert sizes(plan(state(one_of(flag, cpu=4), (demand,)))) == {"a": 4}


@pytest.mark.parametrize("flag", ["is_cordoned", "is_draining", "is_revocable"])
def test_job_with_a_lower_maximum_leaves_that_machine_first(flag: str) -> None:
    demand = job("a", workers(1, 4, cpu=1))
    # Without the flag, the machine with the fewest instances is left.
    pods = pods_of(demand, "worker", {"m0": 3, "m1": 2})
    made = decision(plan(state(one_of(flag, cpu=4), (demand,), pods)), "a")
    assert isinstance(made, Shrink | Move)
    assert made.size == 4
    assert set(made.victims) <= {f"default/a-worker-{number}" for number in range(3)}


def test_spot_machine_is_left_first_for_another_job() -> None:
    demand, other = job("a", workers(1, 6, cpu=1)), job("b", workers(1, 1, cpu=1))
    pods = pods_of(demand, "worker", {"m0": 3, "m1": 3})
    last_is_spot = one_of("is_revocable", cpu=3)[::-1]
    spot = replace(last_is_spot[0], name="m1", is_revocable=False), replace(last_is_spot[1], name="m0")
    made = decision(plan(state(spot, (demand, other), pods)), "a")
    assert isinstance(made, Shrink)
    assert made.victims == ("default/a-worker-2",)


def test_instances_on_a_cordoned_machine_stay_although_there_is_room_elsewhere() -> None:
    demand = job("a", workers(1, 4, cpu=1))
    pods = pods_of(demand, "worker", {"m0": 4})
    made = decision(plan(state(one_of("is_cordoned", cpu=4), (demand,), pods)), "a")
    assert isinstance(made, Hold)


def test_instances_leave_a_draining_machine_for_room_elsewhere() -> None:
    demand = job("a", workers(1, 4, cpu=1))
    pods = pods_of(demand, "worker", {"m0": 2, "m1": 2})
    before = state(one_of("is_draining", cpu=4), (demand,), pods)
    result = plan(before)
    made = decision(result, "a")
    assert isinstance(made, Move)
    assert made.victims == ("default/a-worker-0", "default/a-worker-1")
    assert made.reason == "Keeps 4 instances and changes machines: m0 is about to be removed."
    assert plan(apply_plan(before, result)).changes == ()


def test_job_shrinks_to_its_minimum_where_no_other_machine_has_room() -> None:
    demand = job("a", workers(3, 4, cpu=1))
    pods = (*pods_of(demand, "worker", {"m0": 2, "m1": 2}), foreign("full", "m1", cpu=2))
    before = state(one_of("is_draining", cpu=4), (demand,), pods)
    result = plan(before)
    made = decision(result, "a")
    assert isinstance(made, Shrink)
    assert (made.size, made.victims) == (3, ("default/a-worker-1",))
    assert made.reason == "Shrinks from 4 to 3: m0 is about to be removed."
    # The one that its minimum needs stays until it is evicted.
    assert plan(apply_plan(before, result)).changes == ()


def test_job_of_whole_machines_leaves_with_all_its_instances() -> None:
    demand = job("a", workers(2, 2, gpu=1, cpu=1))
    pods = pods_of(demand, "worker", {"m0": 2})
    made = decision(plan(state(one_of("is_draining", cpu=4, gpu=4), (demand,), pods)), "a")
    assert isinstance(made, Move)
    assert made.placement["worker"] == {"m1": 2}


def test_lost_instance_does_not_stop_a_job_that_is_partly_on_a_cordoned_machine() -> None:
    demand = job("a", fixed("master", 1, cpu=1), workers(2, 4, cpu=1))
    # One of two instances is lost, and the open machine has room for one.
    pods = (
        *pods_of(demand, "master", {"m0": 1}),
        *pods_of(demand, "worker", {"m0": 1}),
        foreign("full", "m1", cpu=3),
    )
    made = decision(plan(state(one_of("is_cordoned", cpu=4), (demand,), pods)), "a")
    assert isinstance(made, Grow)
    assert made.placement == {"master": {"m0": 1}, "worker": {"m0": 1, "m1": 1}}


def test_lost_master_does_not_release_what_is_on_a_cordoned_machine() -> None:
    demand = job("a", fixed("master", 1, cpu=1), workers(1, 4, cpu=1))
    pods = (*pods_of(demand, "worker", {"m0": 3, "m1": 1}), foreign("full", "m1", cpu=2))
    made = decision(plan(state(one_of("is_cordoned", cpu=4), (demand,), pods)), "a")
    assert made.placement == {"master": {"m1": 1}, "worker": {"m0": 3, "m1": 1}}
    assert not getattr(made, "victims", ())
