"""Jobs whose instances are spread over machines: whole machines are preferred, and no device stays idle for it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from elasticdl.scheduling.cluster import ClusterState, Machine, Pod
from elasticdl.scheduling.decisions import Grow, Hold, Plan
from elasticdl.scheduling.demand import JobDemand, Observation, Progress
from elasticdl.scheduling.planner import plan
from elasticdl.scheduling.projection import apply_plan
from tests.random_histories import seeds
from tests.scheduling.builders import decision, job, machines, overcommitted, pods_of, sizes, state, workers

DEVICE = "example.com/device"


def _machines(count: int, devices: int) -> tuple[Machine, ...]:
    return machines(count, **{DEVICE: devices})


def _job(name: str, minimum: int = 1, maximum: int = 9, **fields: object) -> JobDemand:
    return job(name, workers(minimum, maximum, **{DEVICE: 1}), **fields)


def _measured(name: str, *, across: float, local: float = 0.0, maximum: int = 9) -> JobDemand:
    """A job of known work; `across` and `local`: seconds of synchronisation per step of 0.1 s."""
    seen = [
        Observation(
            machines=count, replicas=size, local_batch=1.0, step_seconds=0.1 + sync, compute_seconds=0.1
        )
        for count, size, sync in (
            (1, 1, 0.0),
            (1, 2, local),
            (1, 3, local),
            (2, 2, across),
            (2, 3, across),
            (3, 6, across),
        )
    ]
    return _job(
        name,
        maximum=maximum,
        observations=tuple(seen),
        largest_run_size=6,
        progress=Progress(work_done=1e5, work_total=1e6),
    )


def _running(nodes: tuple[Machine, ...], *runs: tuple[JobDemand, dict[str, int]]) -> ClusterState:
    pods = tuple(pod for demand, spots in runs for pod in pods_of(demand, "worker", spots))
    return state(nodes, tuple(demand for demand, _ in runs), pods)


def _idle(cluster: ClusterState) -> dict[str, int]:
    used = [pod.machine for pod in cluster.pods if pod.occupies_resources]
    free = {each.name: each.allocatable[DEVICE] - used.count(each.name) for each in cluster.machines}
    return {name: count for name, count in free.items() if count}


SPREAD = ({"m0": 3}, {"m1": 1, "m2": 1}, {"m1": 1, "m2": 1})


def test_single_devices_on_several_machines_go_to_jobs_that_are_spread() -> None:
    before = _running(
        _machines(3, 3), *((_job(name), spots) for name, spots in zip("abc", SPREAD, strict=True))
    )
    result = plan(before)
    assert sizes(result) == {"a": 3, "b": 3, "c": 3}
    after = apply_plan(before, result)
    assert _idle(after) == {}
    assert plan(after).changes == ()


def test_growth_by_single_devices_moves_no_instance() -> None:
    before = _running(
        _machines(3, 3), *((_job(name), spots) for name, spots in zip("abc", SPREAD, strict=True))
    )
    made = decision(plan(before), "b")
    assert isinstance(made, Grow)
    assert made.victims == ()


def test_whole_machines_come_before_single_devices() -> None:
    result = plan(_running(_machines(3, 3), (_job("a"), {"m0": 3}), (_job("b"), {"m1": 3})))
    assert sizes(result) == {"a": 6, "b": 3}
    assert decision(result, "a").placement["worker"] == {"m0": 3, "m2": 3}


def test_job_of_more_than_a_machine_takes_the_devices_that_make_no_whole_one() -> None:
    before = _running(_machines(2, 4), (_job("a"), {"m0": 4}), (_job("b", 2, 2), {"m1": 2}))
    result = plan(before)
    assert decision(result, "a").placement["worker"] == {"m0": 4, "m1": 2}
    assert plan(apply_plan(before, result)).changes == ()


def test_measured_job_takes_single_devices_if_that_pays_across_machines() -> None:
    runs = ((_measured(name, across=0.01), spots) for name, spots in zip("abc", SPREAD, strict=True))
    before = _running(_machines(3, 3), *runs)
    result = plan(before)
    after = apply_plan(before, result)
    assert _idle(after) == {}
    assert plan(after).changes == ()


def test_measured_job_leaves_devices_that_would_slow_it_down() -> None:
    slow = _measured("a", across=5.0)
    result = plan(_running(_machines(2, 4), (slow, {"m0": 4}), (_job("b", 2, 2), {"m1": 2})))
    made = decision(result, "a")
    assert isinstance(made, Hold)
    assert made.placement["worker"] == {"m0": 4}


@pytest.mark.soak
@pytest.mark.parametrize("is_measured", [False, True], ids=["unknown speed", "measured"])
def test_scheduler_that_spreads_pods_leaves_no_device_idle_and_starts_no_ping_pong(is_measured: bool) -> None:
    for seed in seeds(20):
        rng = random.Random(seed)
        nodes = _machines(rng.randrange(1, 6), rng.randrange(1, 5))
        devices = sum(node.allocatable[DEVICE] for node in nodes)
        jobs = [
            replace(_measured(name, across=0.001), largest_run_size=devices) if is_measured else _job(name)
            for name in "abcdef"
        ]
        cluster = state(nodes)
        # Jobs come, and later some of them end.
        for present in (jobs[: rng.randrange(1, 4)], jobs[: rng.randrange(3, 7)], rng.sample(jobs, 2)):
            keys = {each.key for each in present}
            pods = tuple(pod for pod in cluster.pods if pod.job_key in keys)
            cluster = _settled(rng, replace(cluster, jobs=tuple(present), pods=pods))
            assert plan(cluster).changes == (), f"seed {seed} does not settle"
            running = sum(size > 0 for size in sizes(plan(cluster)).values())
            assert len(cluster.pods) == min(devices, 9 * running), f"seed {seed}"


def _settled(rng: random.Random, cluster: ClusterState) -> ClusterState:
    """The cluster after a few plans, the last of which should change nothing."""
    for _ in range(6):
        result = plan(cluster)
        if not result.changes:
            break
        cluster = _scheduled(rng, cluster, result)
    return cluster


def _scheduled(rng: random.Random, cluster: ClusterState, made: Plan) -> ClusterState:
    """The plan carried out by a scheduler that puts new pods on any machine with room."""
    known = {pod.key for pod in cluster.pods}
    after = apply_plan(cluster, made)
    pods: list[Pod] = [pod for pod in after.pods if pod.key in known]
    for pod in after.pods:
        if pod.key not in known:
            options = [replace(pod, machine=node.name) for node in cluster.machines]
            pods.append(
                rng.choice(
                    [each for each in options if not overcommitted(replace(after, pods=(*pods, each)))]
                )
            )
    return replace(after, pods=tuple(pods))
