"""Admission: all role groups at their minimum on actual machines, or nothing."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.scheduling.cluster import Machine, PodPhase
from elasticdl.scheduling.decisions import Admit, Hold, Preempt, Reject, Shrink
from elasticdl.scheduling.demand import RoleGroup
from elasticdl.scheduling.planner import plan
from elasticdl.scheduling.requirements import Taint, Toleration
from tests.scheduling.builders import decision, fixed, foreign, job, machines, pods_of, sizes, state, workers


def test_job_whose_minimum_fits_is_admitted_with_all_groups() -> None:
    demand = job("a", fixed("master", 1, cpu=1), fixed("ps", 2, cpu=4), workers(2, 2, cpu=3))
    made = decision(plan(state(machines(2, cpu=8), (demand,))), "a")
    assert isinstance(made, Admit)
    assert {role: sum(spots.values()) for role, spots in made.placement.items()} == {
        "master": 1,
        "ps": 2,
        "worker": 2,
    }


def test_sum_of_free_capacity_without_a_machine_that_fits_does_not_admit() -> None:
    """Sums instead of placement: four machines with 3 CPUs free each are no room for a pod of 4."""
    pods = tuple(foreign(f"f{n}", f"m{n}", cpu=5) for n in range(4))
    made = decision(plan(state(machines(4, cpu=8), (job("a", workers(1, 3, cpu=4)),), pods)), "a")
    assert isinstance(made, Hold)
    assert made.size == 0


def test_servers_that_fit_without_their_trainers_are_not_placed() -> None:
    demand = job("a", fixed("ps", 1, cpu=2), workers(1, 4, cpu=8))
    pods = (foreign("f", "m0", cpu=2),)
    made = decision(plan(state(machines(1, cpu=10), (demand,), pods)), "a")
    assert isinstance(made, Hold)
    assert all(not spots for spots in made.placement.values())


def test_job_that_holds_servers_while_its_trainers_do_not_fit_releases_them() -> None:
    demand = job("a", fixed("ps", 1, cpu=2), workers(1, 4, cpu=8))
    other = job("b", workers(1, 1, cpu=2), submitted_at_seconds=5.0)
    pods = (*pods_of(demand, "ps", {"m0": 1}), foreign("f", "m0", cpu=6))
    result = plan(state(machines(1, cpu=10), (demand, other), pods))
    made = decision(result, "a")
    assert isinstance(made, Preempt)
    assert made.victims == ("default/a-ps-0",)


def test_waiting_jobs_start_by_priority_then_age() -> None:
    jobs = (
        job("old", workers(1, 1, cpu=4), submitted_at_seconds=1.0),
        job("young", workers(1, 1, cpu=4), submitted_at_seconds=2.0),
        job("urgent", workers(1, 1, cpu=4), submitted_at_seconds=3.0, priority=1),
    )
    assert sizes(plan(state(machines(1, cpu=8), jobs))) == {"urgent": 1, "old": 1, "young": 0}


def test_running_jobs_above_minimum_shrink_for_a_waiting_job() -> None:
    running = job("a", workers(1, 8, cpu=1))
    waiting = job("b", workers(2, 2, cpu=1), submitted_at_seconds=9.0)
    result = plan(state(machines(1, cpu=8), (running, waiting), pods_of(running, "worker", {"m0": 8})))
    shrunk = decision(result, "a")
    assert isinstance(shrunk, Shrink)
    assert shrunk.size == 6
    assert shrunk.victims == ("default/a-worker-6", "default/a-worker-7")
    assert isinstance(decision(result, "b"), Admit)


def test_jobs_of_higher_priority_do_not_shrink_for_a_waiting_job() -> None:
    running = job("a", workers(1, 8, cpu=1), priority=2)
    waiting = job("b", workers(1, 1, cpu=1))
    result = plan(state(machines(1, cpu=8), (running, waiting), pods_of(running, "worker", {"m0": 8})))
    assert sizes(result) == {"a": 8, "b": 0}


def test_small_job_is_backfilled_outside_of_the_reservation_of_the_head() -> None:
    head = job("head", workers(1, 1, cpu=8), submitted_at_seconds=1.0)
    small = job("small", workers(1, 1, cpu=2), submitted_at_seconds=2.0)
    running = job("run", workers(1, 1, cpu=4), submitted_at_seconds=0.0)
    nodes = (Machine(name="m0", allocatable={"cpu": 8}), Machine(name="m1", allocatable={"cpu": 2}))
    pods = pods_of(running, "worker", {"m0": 1})
    result = plan(state(nodes, (head, small, running), pods))
    assert decision(result, "small").placement["worker"] == {"m1": 1}
    assert "reservation" in decision(result, "head").reason


def test_small_job_that_would_delay_the_head_waits() -> None:
    head = job("head", workers(1, 1, cpu=8), submitted_at_seconds=1.0)
    small = job("small", workers(1, 1, cpu=2), submitted_at_seconds=2.0)
    running = job("run", workers(1, 1, cpu=4), submitted_at_seconds=0.0)
    result = plan(state(machines(1, cpu=8), (head, small, running), pods_of(running, "worker", {"m0": 1})))
    made = decision(result, "small")
    assert made.size == 0
    assert "default/head" in made.reason


def test_job_larger_than_the_cluster_is_rejected_and_blocks_no_other() -> None:
    huge = job("huge", workers(5, 9, cpu=8), submitted_at_seconds=1.0, priority=9)
    small = job("small", workers(1, 1, cpu=8), submitted_at_seconds=2.0)
    result = plan(state(machines(4, cpu=8), (huge, small)))
    assert isinstance(decision(result, "huge"), Reject)
    assert isinstance(decision(result, "small"), Admit)


def test_empty_cluster_rejects_every_job() -> None:
    assert isinstance(decision(plan(state((), (job("a", workers(1, 2, cpu=1)),))), "a"), Reject)


def test_one_failed_pod_does_not_freeze_its_job() -> None:
    demand = job("a", workers(1, 4, cpu=1))
    first, *rest = pods_of(demand, "worker", {"m0": 3})
    made = decision(
        plan(state(machines(1, cpu=4), (demand,), (replace(first, phase=PodPhase.FAILED), *rest))), "a"
    )
    assert made.previous_size == 2
    assert made.size == 4


def test_unbound_pods_of_a_job_count_once_and_get_a_machine() -> None:
    demand = job("a", workers(1, 3, cpu=4))
    bound, unbound = pods_of(demand, "worker", {"m0": 2})
    made = decision(plan(state(machines(1, cpu=8), (demand,), (bound, replace(unbound, machine=None)))), "a")
    assert made.previous_size == made.size == 2


def test_unbound_pods_of_others_keep_their_room() -> None:
    demand = job("a", workers(1, 9, cpu=1))
    result = plan(state(machines(1, cpu=8), (demand,), (foreign("f", cpu=5),)))
    assert result.reserved == {"other/f": "m0"}
    assert sizes(result) == {"a": 3}


def test_selector_taints_and_cordons_are_respected() -> None:
    nodes = (
        Machine(name="plain", allocatable={"cpu": 8}),
        Machine(name="cordoned", allocatable={"cpu": 8}, labels={"disk": "ssd"}, is_cordoned=True),
        Machine(name="lost", allocatable={"cpu": 8}, labels={"disk": "ssd"}, is_ready=False),
        Machine(name="tainted", allocatable={"cpu": 8}, labels={"disk": "ssd"}, taints=(Taint(key="gpu"),)),
    )
    group = RoleGroup(role="worker", minimum=1, maximum=1, requests={"cpu": 1}, node_selector={"disk": "ssd"})
    tolerant = RoleGroup(
        role="worker",
        minimum=1,
        maximum=1,
        requests={"cpu": 1},
        node_selector={"disk": "ssd"},
        tolerations=(Toleration(key="gpu"),),
    )
    result = plan(state(nodes, (job("a", group), job("b", tolerant))))
    assert isinstance(decision(result, "a"), Reject)
    assert decision(result, "b").placement["worker"] == {"tainted": 1}
