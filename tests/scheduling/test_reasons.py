"""The sentence of a decision says what has caused it."""

from __future__ import annotations

import re
from dataclasses import replace

from elasticdl.scheduling.cluster import Quota
from elasticdl.scheduling.decisions import Hold
from elasticdl.scheduling.demand import JobDemand, Observation, Progress
from elasticdl.scheduling.planner import plan
from tests.scheduling.builders import decision, job, machines, pods_of, state, workers


def test_lowered_maximum_is_named() -> None:
    demand = job("a", workers(1, 2, cpu=1))
    pods = pods_of(demand, "worker", {"m0": 4})
    made = decision(plan(state(machines(1, cpu=4), (demand,), pods)), "a")
    assert made.reason == "Shrinks from 4 to 2: 2 is its maximum now."


def test_pinned_size_is_named() -> None:
    demand = job("a", workers(1, 2, cpu=1), is_pinned=True)
    pods = pods_of(demand, "worker", {"m0": 4})
    made = decision(plan(state(machines(1, cpu=4), (demand,), pods)), "a")
    assert made.reason == "Shrinks from 4 to 2: its size is pinned to 2."


def test_pinned_size_without_room_keeps_the_job_as_it_is() -> None:
    demand = job("a", workers(2, 4, cpu=1), is_pinned=True)
    pods = pods_of(demand, "worker", {"m0": 2})
    made = decision(plan(state(machines(1, cpu=2), (demand,), pods)), "a")
    assert isinstance(made, Hold)
    assert made.reason == (
        "Keeps 2 of the 4 that are pinned: 2 more of cpu=1m wait until other jobs or pods release capacity."
    )


def test_minimum_that_waits_is_described() -> None:
    running, waiting = job("a", workers(2, 2, cpu=2000)), job("b", workers(2, 2, cpu=1500, memory=3 * 2**29))
    pods = pods_of(running, "worker", {"m0": 2})
    result = plan(state(machines(1, cpu=4000, memory=2**34), (running, waiting), pods))
    needs = "2 worker of cpu=1500m, memory=1536Mi"
    assert decision(result, "b").reason.startswith(f"Waits: its minimum does not fit ({needs});")


def test_minimum_larger_than_the_cluster_is_described() -> None:
    demand = job("a", workers(3, 5, cpu=2000, tpu=1))
    result = plan(state(machines(2, cpu=4000, tpu=1), (demand,)))
    assert decision(result, "a").reason == (
        "Rejected: its minimum does not fit on these machines even when they are empty: "
        "2 of 3 worker of cpu=2, tpu=1 would."
    )


def test_machines_that_nothing_else_than_a_selector_excludes_are_named_by_it() -> None:
    group = replace(workers(1, 1, cpu=1000), node_selector={"disk": "ssd"})
    made = decision(plan(state(machines(1, cpu=4000), (job("a", group),))), "a")
    assert made.reason.endswith(": 0 of 1 worker of cpu=1 on machines with disk=ssd would.")


def test_pinned_size_is_reached_whatever_the_speed() -> None:
    slow_at_two = (
        Observation(machines=1, replicas=1, local_batch=1.0, step_seconds=1.0),
        Observation(machines=1, replicas=2, local_batch=1.0, step_seconds=9.0),
    )
    demand = job(
        "a",
        workers(1, 4, cpu=1),
        is_pinned=True,
        observations=slow_at_two,
        progress=Progress(work_done=10.0, work_total=1000.0),
        largest_run_size=1,
    )
    pods = pods_of(demand, "worker", {"m0": 1})
    made = decision(plan(state(machines(1, cpu=4), (demand,), pods)), "a")
    assert made.reason == "Grows from 1 to 4: its size is pinned to 4."


def test_pods_without_a_machine_are_named() -> None:
    demand = job("a", workers(1, 4, cpu=1))
    bound = pods_of(demand, "worker", {"m0": 4})
    pods = (*bound[:2], *(replace(pod, machine=None) for pod in bound[2:]))
    made = decision(plan(state(machines(1, cpu=2), (demand,), pods)), "a")
    assert made.reason == "Shrinks from 4 to 2: no machine has room for 2 of its pods."


def test_job_of_higher_priority_is_named() -> None:
    low, high = job("low", workers(1, 4, cpu=1)), job("high", workers(1, 4, cpu=1), priority=5)
    pods = (*pods_of(low, "worker", {"m0": 3}), *pods_of(high, "worker", {"m0": 1}))
    made = decision(plan(state(machines(1, cpu=4), (low, high), pods)), "low")
    assert made.reason == "Shrinks from 3 to 1: gives to default/high, whose priority is higher."


def test_lower_share_is_named() -> None:
    one, other = job("one", workers(1, 4, cpu=1)), job("other", workers(1, 4, cpu=1))
    pods = (*pods_of(one, "worker", {"m0": 3}), *pods_of(other, "worker", {"m0": 1}))
    made = decision(plan(state(machines(1, cpu=4), (one, other), pods)), "one")
    assert made.reason == "Shrinks from 3 to 2: gives to default/other, whose share is lower."


def test_guarantee_of_a_quota_is_named() -> None:
    mine = job("mine", workers(1, 4, cpu=1), namespace="mine", weight=9.0)
    theirs = job("theirs", workers(1, 8, cpu=1), namespace="theirs")
    pods = (*pods_of(mine, "worker", {"m0": 2}), *pods_of(theirs, "worker", {"m0": 6}))
    quotas = (
        Quota(namespace="mine", guaranteed={"cpu": 4}),
        Quota(namespace="theirs", guaranteed={"cpu": 4}),
    )
    made = plan(state(machines(1, cpu=8), (mine, theirs), pods, quotas)).of("theirs/theirs")
    assert made.reason == (
        "Shrinks from 6 to 4: gives back to mine/mine what the quota of namespace mine guarantees."
    )


def measured(name: str, *step_seconds: float) -> JobDemand:
    """A job of 1 to 8 workers with these step times at 1, 2 and 4 workers."""
    observations = tuple(
        Observation(machines=1, replicas=count, local_batch=1.0, step_seconds=seconds)
        for count, seconds in zip((1, 2, 4), step_seconds, strict=True)
    )
    progress = Progress(work_done=10.0, work_total=100_000.0)
    return job(name, workers(1, 8, cpu=1), observations=observations, progress=progress, largest_run_size=4)


def reason_of_shrinking(demand: JobDemand) -> str:
    """Beside a job whose speed is in proportion to its size."""
    other = measured("other", 1.0, 1.0, 1.0)
    pods = (*pods_of(demand, "worker", {"m0": 4}), *pods_of(other, "worker", {"m0": 4}))
    return decision(plan(state(machines(1, cpu=8), (demand, other), pods)), demand.name).reason


def test_job_that_is_as_fast_with_fewer_is_said_to_be() -> None:
    reason = reason_of_shrinking(measured("flat", 1.0, 2.0, 4.0))
    assert reason == "Shrinks from 4 to 1: it trains as fast with fewer."


def test_loss_of_speed_for_the_gain_of_others_is_named() -> None:
    reason = reason_of_shrinking(measured("slow", 1.0, 1.6, 2.9))
    assert re.fullmatch(r"Shrinks from 4 to \d: it keeps \d\d% of its speed and others gain more\.", reason)
