"""Growth of measured jobs: where an instance adds most, what a resize costs, and the bound on exploration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticdl.scheduling.cluster import ClusterState, Machine
from elasticdl.scheduling.decisions import Hold
from elasticdl.scheduling.demand import BatchLimits, GradientNoise, JobDemand, Observation, Progress
from elasticdl.scheduling.growth.target_sizes import candidate_sizes, work_left
from elasticdl.scheduling.planner import plan
from tests.scheduling.builders import decision, job, machines, pods_of, sizes, state, workers

LIMITS = BatchLimits(initial=32, largest=4096, smallest_local=8, largest_local=64)


def measured(
    name: str,
    *,
    sync: float = 0.01,
    ran: int = 16,
    done: float = 10.0,
    resize: float = 30.0,
    work: float = 1e5,
    **fields: object,
) -> JobDemand:
    """A GPU job that has run with 1, 2, 4 … `ran` workers; `sync` seconds of synchronisation per step."""
    seen = []
    size = 1
    while size <= ran:
        seen += [
            Observation(
                machines=-(-size // 4),
                replicas=size,
                local_batch=batch,
                step_seconds=0.05 + batch * 0.002 + (sync if size > 1 else 0.0),
                compute_seconds=0.05 + batch * 0.002,
            )
            for batch in (16, 32, 64)
        ]
        size *= 2
    return job(
        name,
        workers(1, 64, gpu=1),
        observations=tuple(seen),
        largest_run_size=ran,
        batch=LIMITS,
        noise=GradientNoise(square=1.0, variance=500.0),
        progress=Progress(epochs_done=done, epochs_total=20.0, work_done=work),
        resize_cost_seconds=resize,
        **fields,
    )


def _running(nodes: tuple[Machine, ...], demand: JobDemand, spots: dict[str, int]) -> ClusterState:
    return state(nodes, (demand,), pods_of(demand, "worker", spots))


def test_job_that_scales_better_gets_more() -> None:
    result = sizes(plan(state(machines(4, gpu=4), (measured("good"), measured("bad", sync=30.0)))))
    assert result["good"] > result["bad"]


def test_growth_is_at_most_double_what_the_job_has_run_with() -> None:
    result = plan(_running(machines(4, gpu=4), measured("a", ran=2), {"m0": 2}))
    assert sizes(result) == {"a": 4}


def test_job_that_never_ran_starts_at_its_minimum() -> None:
    demand = replace(measured("a", ran=0), observations=())
    assert sizes(plan(state(machines(4, gpu=4), (demand,)))) == {"a": 1}


def test_no_growth_near_the_end_of_a_job() -> None:
    nodes = machines(4, gpu=4)
    early = measured("a", done=10.0)
    late = measured("a", done=19.999, work=5e4)
    assert decision(plan(_running(nodes, early, {"m0": 2})), "a").size > 2
    made = decision(plan(_running(nodes, late, {"m0": 2})), "a")
    assert isinstance(made, Hold)
    assert "pay" in made.reason


def test_expensive_resize_is_not_made() -> None:
    nodes = machines(4, gpu=4)
    assert decision(plan(_running(nodes, measured("a", resize=5.0), {"m0": 2})), "a").size > 2
    assert isinstance(decision(plan(_running(nodes, measured("a", resize=5000.0), {"m0": 2})), "a"), Hold)


@pytest.mark.parametrize("noise", [0.95, 0.98, 1.02, 1.05])
def test_noise_in_measurements_changes_no_size(noise: float) -> None:
    nodes = machines(4, gpu=4)
    jobs = tuple(measured(name) for name in "abc")
    first = plan(state(nodes, jobs))
    pods = tuple(
        pod
        for demand in jobs
        for pod in pods_of(demand, "worker", decision(first, demand.name).placement["worker"])
    )
    noisy = tuple(
        replace(
            demand,
            observations=tuple(
                replace(seen, step_seconds=seen.step_seconds * (noise if number % 2 else 1.0))
                for number, seen in enumerate(demand.observations)
            ),
        )
        for demand in jobs
    )
    assert plan(state(nodes, noisy, pods)).changes == ()


def test_sizes_beyond_a_machine_are_whole_machines() -> None:
    result = plan(state(machines(4, gpu=4), (measured("a"), measured("b"))))
    for item in result.decisions:
        spots = item.placement["worker"]
        assert len(spots) == 1 or set(spots.values()) == {4}


def test_small_jobs_share_a_machine_and_leave_others_whole() -> None:
    one, two = (replace(measured(name, ran=1), largest_run_size=1) for name in ("one", "two"))
    small = tuple(replace(demand, groups=(workers(1, 1, gpu=1),)) for demand in (one, two))
    big = replace(measured("big", ran=4), groups=(workers(1, 4, gpu=1),))
    result = plan(state(machines(2, gpu=4), (*small, big)))
    assert decision(result, "one").placement == decision(result, "two").placement
    assert list(decision(result, "big").placement["worker"].values()) == [4]


def test_short_job_is_preferred_to_a_long_one() -> None:
    short = measured("short", work=2e4, ran=8)
    long = measured("long", work=5e6, ran=8)
    result = sizes(plan(state(machines(3, gpu=4), (short, long))))
    assert result["short"] > result["long"]


def test_weight_attracts_capacity() -> None:
    heavy, light = measured("heavy", weight=8.0, ran=8), measured("light", ran=8)
    result = sizes(plan(state(machines(3, gpu=4), (heavy, light))))
    assert result["heavy"] > result["light"]


def test_higher_priority_takes_what_lower_has_above_its_minimum() -> None:
    high, low = measured("high", priority=1, ran=8), measured("low", ran=8)
    pods = (*pods_of(low, "worker", {"m0": 4, "m1": 4}), *pods_of(high, "worker", {"m2": 1}))
    result = sizes(plan(state(machines(3, gpu=4), (high, low), pods)))
    assert result["high"] >= 8
    assert result["low"] >= 1


@pytest.mark.parametrize(
    ("smallest", "largest", "whole", "expected"),
    [
        (1, 16, True, [1, 2, 3, 4, 8, 12, 16]),
        (1, 3, True, [1, 2, 3]),
        (6, 13, True, [6, 8, 12]),
        (2, 5, False, [2, 3, 4, 5]),
        (1, 1, True, [1]),
    ],
)
def test_candidate_sizes(smallest: int, largest: int, whole: bool, expected: list[int]) -> None:
    assert candidate_sizes(smallest, largest, 4, whole_machines=whole).tolist() == expected


def test_candidate_sizes_of_huge_ranges_stay_few_and_keep_both_ends() -> None:
    result = candidate_sizes(1, 10_000, 1, whole_machines=False)
    assert len(result) <= 64
    assert (result[0], result[-1]) == (1, 10_000)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(work_done=30.0, work_total=100.0), 70.0),
        (Progress(epochs_done=2.5, epochs_total=10.0, work_done=100.0), 300.0),
        # Two whole epochs: on average in the middle of the third.
        (Progress(epochs_done=2.0, epochs_total=10.0, work_done=100.0), 300.0),
        (Progress(epochs_done=0.0, epochs_total=10.0, work_done=0.0), None),
        (Progress(work_done=5.0), None),
    ],
)
def test_work_left(progress: Progress, expected: float | None) -> None:
    assert work_left(job("a", workers(1, 2, cpu=1), progress=progress)) == expected
