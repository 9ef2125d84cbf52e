"""Planning from changes gives the plan of the whole state."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from elasticdl.scheduling.cluster import Changes, ClusterState, Machine
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.planner import Planner, plan
from elasticdl.scheduling.projection import apply_plan
from tests.scheduling.builders import NOW, foreign, job, machines, state, workers


def _start(seed: int) -> ClusterState:
    rng = random.Random(seed)
    jobs = tuple(
        job(f"j{n}", workers(1, rng.randrange(2, 9), cpu=rng.randrange(1, 4)), submitted_at_seconds=float(n))
        for n in range(6)
    )
    before = state(machines(5, cpu=12), jobs)
    return apply_plan(before, plan(before))


def _change(rng: random.Random, now: ClusterState, number: int) -> tuple[Changes, ClusterState]:
    gone = rng.sample(now.pods, 2)
    moved = [replace(pod, machine=None) for pod in rng.sample(now.pods, 1) if pod not in gone]
    new = (foreign(f"f{number}", priority=rng.choice((0, 3)), cpu=rng.randrange(1, 5)), *moved)
    updated = replace(rng.choice(now.jobs), weight=rng.choice((1.0, 2.0)))
    added = job(f"new{number}", workers(1, 4, cpu=2), submitted_at_seconds=500.0 + number)
    nodes = (Machine(name=f"extra{number}", allocatable={"cpu": 4}),) if rng.random() < 0.3 else ()
    changes = Changes(
        now_seconds=NOW + number,
        pods=new,
        removed_pods=tuple(pod.key for pod in gone),
        jobs=(updated, added),
        machines=nodes,
    )
    kept = [pod for pod in now.pods if pod not in gone and pod.key not in {p.key for p in new}]
    jobs = tuple(updated if known.key == updated.key else known for known in now.jobs)
    after = replace(
        now,
        now_seconds=changes.now_seconds,
        machines=now.machines + nodes,
        pods=(*kept, *new),
        jobs=(*jobs, added),
    )
    return changes, after


@pytest.mark.parametrize("seed", range(12))
def test_replan_equals_plan_of_the_changed_state(seed: int) -> None:
    rng = random.Random(seed)
    now = _start(seed)
    planner = Planner()
    planner.plan(now)
    for number in range(5):
        changes, now = _change(rng, now, number)
        assert planner.replan(changes) == plan(now)


def test_removed_job_with_pods_leaves_them_as_pods_of_others() -> None:
    now = _start(1)
    planner = Planner()
    planner.plan(now)
    gone = now.jobs[0].key
    result = planner.replan(Changes(now_seconds=NOW, removed_jobs=(gone,)))
    assert result == plan(replace(now, jobs=now.jobs[1:]))


def test_job_that_comes_back_counts_the_pods_that_it_had() -> None:
    now = _start(1)
    planner = Planner()
    planner.plan(now)
    back = now.jobs[0]
    planner.replan(Changes(now_seconds=NOW, removed_jobs=(back.key,)))
    assert planner.replan(Changes(now_seconds=NOW, jobs=(back,))) == plan(now)
    ended = next(pod for pod in now.pods if pod.job_key == back.key)
    result = planner.replan(Changes(now_seconds=NOW, removed_pods=(ended.key,)))
    assert result == plan(replace(now, pods=tuple(pod for pod in now.pods if pod is not ended)))


def test_job_that_adopts_pods_counts_them() -> None:
    now = _start(2)
    planner = Planner()
    planner.plan(replace(now, jobs=now.jobs[1:]))
    assert planner.replan(Changes(now_seconds=NOW, jobs=now.jobs[:1])) == plan(now)


def test_replan_before_plan_is_an_error() -> None:
    with pytest.raises(SchedulingInputError, match="plan"):
        Planner().replan(Changes(now_seconds=NOW))


def test_removing_an_unknown_pod_is_an_error_that_names_it() -> None:
    planner = Planner()
    planner.plan(_start(0))
    with pytest.raises(SchedulingInputError, match="default/ghost"):
        planner.replan(Changes(now_seconds=NOW, removed_pods=("default/ghost",)))
