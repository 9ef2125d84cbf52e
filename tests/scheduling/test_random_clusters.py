"""Promises that hold for every plan, on random clusters."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.scheduling.cluster import ClusterState, Machine, Pod, PodPhase
from elasticdl.scheduling.decisions import Admit, Grow, Move, Preempt, Reject, Shrink
from elasticdl.scheduling.demand import (
    BatchLimits,
    GradientNoise,
    JobDemand,
    Observation,
    Progress,
    RoleGroup,
)
from elasticdl.scheduling.inventory import Inventory
from elasticdl.scheduling.planner import plan
from elasticdl.scheduling.planner_settings import PlannerSettings
from elasticdl.scheduling.projection import apply_plan
from elasticdl.scheduling.requirements import PODS
from tests.random_histories import histories
from tests.scheduling.builders import foreign, overcommitted, state


def _observations(rng: random.Random, largest: int) -> tuple[Observation, ...]:
    result = []
    size = 1
    while size <= largest:
        batch = rng.choice((16, 32, 64))
        compute = 0.05 + batch * rng.choice((0.001, 0.004))
        sync = 0.0 if size == 1 else rng.choice((0.01, 0.05))
        result.append(
            Observation(
                machines=-(-size // 4),
                replicas=size,
                local_batch=batch,
                step_seconds=compute + sync,
                compute_seconds=compute,
            )
        )
        size *= 2
    return tuple(result)


def _job(rng: random.Random, number: int, *, gpu: bool) -> JobDemand:
    priority = rng.choice((0, 0, 0, 1, 2))
    common = {
        "name": f"j{number}",
        "priority": priority,
        "weight": rng.choice((1.0, 1.0, 2.0)),
        "submitted_at_seconds": float(rng.randrange(900)),
    }
    if gpu and rng.random() < 0.4:
        # Of unknown speed.
        least = rng.choice((1, 1, 2, 3))
        return JobDemand(
            groups=(
                RoleGroup(
                    role="worker",
                    minimum=least,
                    maximum=least + rng.randrange(0, 12),
                    requests={"cpu": 1, "gpu": 1},
                ),
            ),
            **common,  # type: ignore[arg-type]
        )
    if gpu:
        largest = rng.choice((0, 1, 2, 4, 8))
        return JobDemand(
            groups=(
                RoleGroup(
                    role="worker", minimum=rng.choice((1, 1, 2)), maximum=16, requests={"cpu": 1, "gpu": 1}
                ),
            ),
            observations=_observations(rng, largest),
            largest_run_size=largest,
            batch=BatchLimits(initial=32, largest=2048, smallest_local=8, largest_local=64),
            noise=GradientNoise(square=1.0, variance=rng.uniform(1, 300)),
            progress=Progress(
                epochs_done=float(rng.randrange(0, 10)), epochs_total=10.0, work_done=rng.uniform(0, 1e5)
            ),
            **common,  # type: ignore[arg-type]
        )
    minimum = rng.randrange(1, 4)
    groups = [
        RoleGroup(
            role="worker",
            minimum=minimum,
            maximum=minimum + rng.randrange(0, 12),
            requests={"cpu": rng.randrange(1, 6)},
        )
    ]
    if rng.random() < 0.6:
        groups.append(RoleGroup(role="ps", minimum=2, maximum=2, requests={"cpu": rng.randrange(1, 5)}))
        groups.append(RoleGroup(role="master", minimum=1, maximum=1, requests={"cpu": 1}))
    return JobDemand(groups=tuple(groups), **common)  # type: ignore[arg-type]


def _cluster(seed: int) -> ClusterState:
    """A cluster in the middle of its life: planned for some jobs, then changed by arrivals, failures and others."""
    rng = random.Random(seed)
    are_limited = rng.random() < 0.4
    nodes = tuple(
        Machine(
            name=f"m{number}",
            allocatable={
                "cpu": rng.choice((4, 12, 28)),
                "gpu": rng.choice((0, 4)),
                **({PODS: rng.choice((2, 5, 110))} if are_limited and rng.random() < 0.8 else {}),
            },
            is_revocable=rng.random() < 0.3,
        )
        for number in range(rng.randrange(0, 9))
    )
    with_gpus = rng.random() < 0.5
    first = tuple(_job(rng, n, gpu=with_gpus and rng.random() < 0.7) for n in range(rng.randrange(0, 6)))
    before = state(nodes, first)
    after = apply_plan(before, plan(before))
    pods = [pod for pod in after.pods if rng.random() > 0.05]
    pods = [replace(pod, phase=PodPhase.FAILED) if rng.random() < 0.03 else pod for pod in pods]
    pods = [replace(pod, machine=None) if rng.random() < 0.05 else pod for pod in pods]
    if rng.random() < 0.3:
        pods = _spread(rng, nodes, pods)
    pods += [
        foreign(f"f{n}", priority=rng.choice((-1, 0, 1, 5)), cpu=rng.randrange(1, 6))
        for n in range(rng.randrange(0, 5))
    ]
    nodes = tuple(
        replace(node, is_cordoned=rng.random() < 0.1, is_draining=rng.random() < 0.1) for node in nodes
    )
    later = tuple(_job(rng, 10 + n, gpu=with_gpus and rng.random() < 0.5) for n in range(rng.randrange(0, 6)))
    return replace(after, machines=nodes, pods=tuple(pods), jobs=first + later)


def _spread(rng: random.Random, nodes: tuple[Machine, ...], pods: list[Pod]) -> list[Pod]:
    """Puts every pod on any machine with room, as the scheduler of a cluster may."""
    placed: list[Pod] = []
    for pod in rng.sample(pods, len(pods)):
        options = [replace(pod, machine=node.name) for node in nodes]
        fitting = [each for each in options if not overcommitted(state(nodes, (), (*placed, each)))]
        placed.append(rng.choice(fitting) if fitting else replace(pod, machine=None))
    return placed


_clusters = st.integers(min_value=0, max_value=2**32).map(_cluster)
_property = histories(30)

pytestmark = pytest.mark.soak


@_property
@given(_clusters)
def test_plan_never_exceeds_capacity_of_any_machine(cluster: ClusterState) -> None:
    assert overcommitted(cluster) == []
    assert overcommitted(apply_plan(cluster, plan(cluster))) == []


@_property
@given(_clusters)
def test_running_jobs_are_never_below_their_minimum(cluster: ClusterState) -> None:
    jobs = {job.key: job for job in cluster.jobs}
    for item in plan(cluster).decisions:
        counts = {role: sum(spots.values()) for role, spots in item.placement.items()}
        groups = {group.role: group for group in jobs[item.job].groups}
        if any(counts.values()):
            assert all(
                groups[role].minimum <= count <= groups[role].maximum for role, count in counts.items()
            )
        else:
            assert item.size == 0


@_property
@given(_clusters)
def test_planning_again_changes_nothing(cluster: ClusterState) -> None:
    after = apply_plan(cluster, plan(cluster))
    again = plan(after)
    assert again.changes == ()


@_property
@given(_clusters, st.randoms(use_true_random=False))
def test_order_of_input_does_not_matter(cluster: ClusterState, rng: random.Random) -> None:
    shuffled = replace(
        cluster,
        machines=tuple(rng.sample(cluster.machines, len(cluster.machines))),
        pods=tuple(rng.sample(cluster.pods, len(cluster.pods))),
        jobs=tuple(rng.sample(cluster.jobs, len(cluster.jobs))),
    )
    assert plan(shuffled) == plan(cluster) == plan(cluster)


@_property
@given(_clusters)
def test_victims_exist_and_belong_to_the_job(cluster: ClusterState) -> None:
    pods = {pod.key: pod for pod in cluster.pods}
    for item in plan(cluster).decisions:
        if isinstance(item, Grow | Shrink | Move | Preempt):
            assert len(set(item.victims)) == len(item.victims)
            assert all(pods[victim].job_key == item.job for victim in item.victims)
        if isinstance(item, Shrink):
            assert item.previous_size - item.size <= len(item.victims)


@_property
@given(_clusters)
def test_jobs_of_unknown_speed_leave_no_room_that_they_could_use(cluster: ClusterState) -> None:
    result = plan(cluster)
    free = _free(apply_plan(cluster, result))
    for job in cluster.jobs:
        item = result.of(job.key)
        group = job.elastic_group
        if item.size == 0 or job.batch is not None or item.size >= group.maximum:
            continue
        request = free.pod_vector(group.requests)
        mask = free.mask(group.node_selector, group.tolerations)
        assert free.pack(request, mask, 1) is None, f"{job.key} could grow"


@_property
@given(_clusters)
def test_no_job_waits_while_one_of_lower_priority_has_more_than_its_minimum_in_its_place(
    cluster: ClusterState,
) -> None:
    """A waiting job with one kind of instance: no machine has a fitting surplus of jobs of lower priority."""
    result = plan(cluster)
    free = _free(apply_plan(cluster, result))
    jobs = {job.key: job for job in cluster.jobs}
    for job in cluster.jobs:
        item = result.of(job.key)
        if item.size or isinstance(item, Reject) or len(job.groups) > 1 or job.groups[0].minimum != 1:
            continue
        if "head of the queue" in item.reason and "reservation" not in item.reason:
            continue
        request = free.pod_vector(job.groups[0].requests)
        mask = free.mask({}, ())
        assert free.pack(request, mask, 1) is None
        for other in result.decisions:
            if jobs[other.job].priority >= job.priority or other.size == 0:
                continue
            surplus = other.size - jobs[other.job].elastic_group.minimum
            role = jobs[other.job].elastic_group.role
            given_back = free.pod_vector(jobs[other.job].elastic_group.requests)
            for machine, count in other.placement[role].items():
                row = free.index[machine]
                room = free.free[row] + given_back * min(surplus, count)
                assert not (mask[row] and (room >= request).all()), f"{other.job} keeps room for {job.key}"


@_property
@given(_clusters)
def test_every_decision_has_a_reason_and_finite_numbers(cluster: ClusterState) -> None:
    result = plan(cluster)
    assert [item.job for item in result.decisions] == sorted(job.key for job in cluster.jobs)
    for item in result.decisions:
        assert item.reason.endswith(".")
        assert all(abs(value) < 1e18 for value in item.numbers.values())


@_property
@given(_clusters, st.sampled_from((0.5, 0.8, 0.97)))
def test_load_target_settles(cluster: ClusterState, target: float) -> None:
    options = PlannerSettings(max_load_desired=target)
    after = apply_plan(cluster, plan(cluster, options))
    assert overcommitted(after) == []
    assert plan(after, options).changes == ()


@_property
@given(_clusters)
def test_admitted_jobs_start_with_all_their_role_groups(cluster: ClusterState) -> None:
    jobs = {job.key: job for job in cluster.jobs}
    for item in plan(cluster).decisions:
        if isinstance(item, Admit):
            for group in jobs[item.job].groups:
                assert sum(item.placement[group.role].values()) >= group.minimum


@_property
@given(_clusters)
def test_machines_that_take_no_pods_get_no_new_instances(cluster: ClusterState) -> None:
    closed = {machine.name for machine in cluster.machines if not machine.takes_pods}
    held: dict[tuple[str | None, str | None, str | None], int] = {}
    for pod in cluster.pods:
        if pod.occupies_resources:
            held[pod.job_key, pod.role, pod.machine] = held.get((pod.job_key, pod.role, pod.machine), 0) + 1
    for item in plan(cluster).decisions:
        for role, spots in item.placement.items():
            for machine in closed & spots.keys():
                assert spots[machine] <= held[item.job, role, machine]


def _free(after: ClusterState) -> Inventory:
    inventory = Inventory(after.machines, ["cpu", "gpu", PODS])
    for pod in after.pods:
        if pod.machine in inventory.index and pod.occupies_resources:
            inventory.take(inventory.index[pod.machine], inventory.pod_vector(pod.requests))
    return inventory
