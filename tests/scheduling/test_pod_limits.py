"""The limit of pods of a machine is one more resource: each pod takes one, whatever it requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticdl.scheduling.cluster import Changes, ClusterState, Machine, PodPhase, Quota
from elasticdl.scheduling.decisions import Admit, Hold, Plan, Reject
from elasticdl.scheduling.demand import JobDemand
from elasticdl.scheduling.planner import Planner, plan
from elasticdl.scheduling.projection import apply_plan
from tests.scheduling.builders import (
    NOW,
    decision,
    fixed,
    foreign,
    job,
    machines,
    overcommitted,
    pods_of,
    sizes,
    state,
    workers,
)


def pods_on(after: ClusterState) -> dict[str, int]:
    counts = {machine.name: 0 for machine in after.machines}
    for pod in after.pods:
        if pod.machine is not None:
            counts[pod.machine] += 1
    return counts


def planned(before: ClusterState) -> tuple[Plan, ClusterState]:
    found = plan(before)
    return found, apply_plan(before, found)


def test_job_grows_to_the_limit_of_pods() -> None:
    _, after = planned(state(machines(2, cpu=100, pods=3), (job("a", workers(1, 50, cpu=1)),)))
    assert pods_on(after) == {"m0": 3, "m1": 3}


def test_each_node_of_a_job_takes_one() -> None:
    demand = job("a", fixed("master", 1, cpu=1), fixed("ps", 2, cpu=1), workers(1, 50, cpu=1))
    found, _ = planned(state(machines(2, cpu=100, pods=4), (demand,)))
    assert sizes(found) == {"a": 5}


def test_pods_of_others_count() -> None:
    others = tuple(foreign(f"daemon-{number}", "m0") for number in range(3))
    _, after = planned(state(machines(2, cpu=100, pods=4), (job("a", workers(1, 50, cpu=1)),), others))
    assert pods_on(after) == {"m0": 4, "m1": 4}


def test_pods_that_have_ended_do_not_count() -> None:
    ended = replace(foreign("done", "m0"), phase=PodPhase.SUCCEEDED)
    found, _ = planned(state(machines(1, cpu=100, pods=2), (job("a", workers(2, 2, cpu=1)),), (ended,)))
    assert isinstance(decision(found, "a"), Admit)


def test_job_waits_for_pods_and_the_reason_says_so() -> None:
    others = (foreign("web", "m0", priority=9),)
    found, after = planned(state(machines(1, cpu=100, pods=2), (job("a", workers(2, 2, cpu=1)),), others))
    waiting = decision(found, "a")
    assert isinstance(waiting, Hold)
    assert "does not fit (2 worker of cpu=1m)" in waiting.reason
    full = (*others, foreign("more", "m0", priority=9))
    reason = decision(plan(state(machines(1, cpu=100, pods=2), after.jobs, full)), "a").reason
    assert "; machines with as many pods as they take: 1" in reason


def test_job_larger_than_all_limits_is_rejected() -> None:
    found, _ = planned(state(machines(2, cpu=100, pods=2), (job("a", workers(5, 5, cpu=1)),)))
    rejected = decision(found, "a")
    assert isinstance(rejected, Reject)
    assert "4 of 5 worker of cpu=1m would, as machines take no more pods" in rejected.reason


def test_instances_without_requests_are_limited() -> None:
    _, after = planned(state(machines(2, cpu=100, pods=3), (job("a", workers(1, 50)),)))
    assert pods_on(after) == {"m0": 3, "m1": 3}


def test_machine_without_a_limit_takes_the_rest() -> None:
    nodes = (*machines(1, cpu=100, pods=2), Machine(name="large", allocatable={"cpu": 40}))
    _, after = planned(state(nodes, (job("a", workers(1, 50, cpu=1)),)))
    assert pods_on(after) == {"m0": 2, "large": 40}


def test_machine_above_its_limit_keeps_what_it_has_and_takes_nothing() -> None:
    others = tuple(foreign(f"daemon-{number}", "m0") for number in range(5))
    _, after = planned(state(machines(2, cpu=100, pods=4), (job("a", workers(2, 3, cpu=1)),), others))
    assert pods_on(after) == {"m0": 5, "m1": 3}


def test_job_shrinks_for_a_pod_that_finds_no_place() -> None:
    demand = job("a", workers(1, 3, cpu=1))
    running = pods_of(demand, "worker", {"m0": 3})
    found, after = planned(
        state(machines(1, cpu=100, pods=3), (demand,), (*running, foreign("web", priority=9)))
    )
    assert sizes(found) == {"a": 2}
    assert found.reserved == {"other/web": "m0"}
    assert pods_on(after) == {"m0": 3}


def test_fair_shares_are_those_of_requests() -> None:
    """A pod is never the main resource: two jobs share CPUs by what they request, not by their pods."""
    small, large = job("small", workers(1, 100, cpu=1)), job("large", workers(1, 100, cpu=4))
    without = plan(state(machines(4, cpu=20), (small, large)))
    found = plan(state(machines(4, cpu=20, pods=30), (small, large)))
    assert sizes(found) == sizes(without)
    assert decision(found, "small").numbers == decision(without, "small").numbers


@pytest.mark.parametrize("guaranteed", [{}, {"cpu": 10}])
def test_quotas_are_about_requests(guaranteed: dict[str, int]) -> None:
    def sizes_with(**limit: int) -> dict[str, int]:
        jobs = (
            job("mine", workers(1, 20, cpu=1), namespace="mine"),
            job("theirs", workers(1, 20, cpu=1), namespace="theirs"),
        )
        quotas = (Quota(namespace="mine", guaranteed=guaranteed, limit={"cpu": 12}),)
        running = pods_of(jobs[1], "worker", {"m0": 10, "m1": 6})
        before = state(machines(2, cpu=10, **limit), jobs, running, quotas)
        return sizes(plan(before))

    assert sizes_with(pods=50) == sizes_with()


def test_replan_after_changes_is_the_plan_of_the_whole_state() -> None:
    demand = job("a", workers(1, 50, cpu=1))
    before = state(machines(2, cpu=100, pods=4), (demand,), (foreign("web-0", "m0"),))
    planner = Planner()
    planner.plan(before)
    added = tuple(foreign(f"web-{number}", "m1") for number in range(1, 4))
    changes = Changes(now_seconds=NOW, pods=added, removed_pods=("other/web-0",))
    assert planner.replan(changes) == plan(replace(before, pods=added))
    larger = Machine(name="m0", allocatable={"cpu": 100, "pods": 9})
    changes = Changes(now_seconds=NOW, machines=(larger,))
    expected = plan(replace(before, pods=added, machines=(larger, before.machines[1])))
    assert planner.replan(changes) == expected
    assert sizes(expected) == {"a": 10}


def test_plan_on_full_machines_is_stable() -> None:
    jobs: tuple[JobDemand, ...] = tuple(
        job(f"job-{number}", fixed("master", 1, cpu=1), workers(1, 9, cpu=2)) for number in range(6)
    )
    before = state(machines(3, cpu=40, pods=7), jobs, (foreign("web", "m1", cpu=1),))
    _, after = planned(before)
    assert max(pods_on(after).values()) <= 7
    assert not overcommitted(after)
    again, later = planned(after)
    assert pods_on(later) == pods_on(after)
    assert all(isinstance(each, Hold | Reject) for each in again.decisions)
