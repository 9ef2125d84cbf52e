"""Nonsense in the input: a clear error that names the object, or a sensible plan; never a crash."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from elasticdl.scheduling.cluster import ClusterState, Machine, Pod, Quota
from elasticdl.scheduling.demand import BatchLimits, Observation, Progress, RoleGroup
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.planner import plan
from elasticdl.scheduling.planner_settings import PlannerSettings
from elasticdl.scheduling.projection import apply_plan
from tests.scheduling.builders import foreign, job, machines, overcommitted, sizes, state, workers


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: workers(3, 2, cpu=1), "worker.*minimum 3 exceeds maximum 2"),
        (lambda: workers(-1, 2, cpu=1), "worker.*minimum is -1"),
        (lambda: workers(1, 2, cpu=-5), r"worker.*requests\['cpu'\] is -5"),
        (lambda: Machine(name="m", allocatable={"cpu": -1}), "machine m.*allocatable"),
        (lambda: Machine(name="m", allocatable={"cpu": math.nan}), "machine m.*nan"),  # type: ignore[dict-item]
        (lambda: Machine(name="", allocatable={}), "empty name"),
        (lambda: Pod(name="p", requests={"cpu": -1}), "pod default/p"),
        (lambda: Pod(name="p", job="a"), "pod default/p.*no role"),
        (lambda: job("a"), "job default/a.*no role groups"),
        (lambda: job("a", workers(1, 2, cpu=1), workers(1, 1, cpu=1)), "a role appears twice"),
        (lambda: job("a", workers(1, 2), RoleGroup(role="ps", minimum=1, maximum=2, requests={})), "elastic"),
        (lambda: job("a", workers(1, 2, cpu=1), weight=0.0), "weight is 0"),
        (lambda: job("a", workers(1, 2, cpu=1), weight=math.nan), "weight is nan"),
        (lambda: job("a", workers(1, 2, cpu=1), resize_cost_seconds=-1.0), "resize_cost_seconds"),
        (lambda: job("a", workers(1, 2, cpu=1), submitted_at_seconds=math.inf), "submitted_at_seconds"),
        (lambda: BatchLimits(initial=64, largest=32), "batch limits"),
        (lambda: Quota(namespace="n", guaranteed={"cpu": 5}, limit={"cpu": 3}), "namespace n"),
        (lambda: state(machines(1, cpu=1) * 2), "machine m0 is listed twice"),
        (lambda: ClusterState(now_seconds=math.nan, machines=()), "now_seconds"),
        (lambda: PlannerSettings(max_load_desired=1.5), "max_load_desired"),
    ],
)
def test_contradiction_raises_an_error_that_names_the_object(make: Callable[[], object], words: str) -> None:
    with pytest.raises(SchedulingInputError, match=words):
        make()


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_unusable_measurements_count_as_none(seconds: float) -> None:
    broken = Observation(machines=1, replicas=1, local_batch=8, step_seconds=seconds)
    jobs = (
        job("a", workers(1, 8, cpu=1), observations=(broken,), bounded_exploration=False),
        job("b", workers(1, 8, cpu=1)),
    )
    assert sizes(plan(state(machines(1, cpu=8), jobs))) == {"a": 4, "b": 4}


@pytest.mark.parametrize("second", [0.001, 1000.0])
def test_contradictory_measurements_give_a_plan_within_capacity(second: float) -> None:
    seen = tuple(
        Observation(machines=1, replicas=r, local_batch=8, step_seconds=s)
        for r, s in ((1, 1.0), (1, second), (2, second), (2, 1.0), (4, 1.0))
    )
    demand = job(
        "a",
        workers(1, 16, gpu=1),
        observations=seen,
        largest_run_size=4,
        progress=Progress(epochs_done=1.0, epochs_total=9.0, work_done=100.0),
    )
    before = state(machines(2, gpu=4), (demand,))
    after = apply_plan(before, plan(before))
    assert overcommitted(after) == []
    assert sum(pod.machine is not None for pod in after.pods) >= 1


@pytest.mark.parametrize(
    "progress",
    [
        Progress(epochs_done=5.0, epochs_total=0.0, work_done=10.0),
        Progress(epochs_done=50.0, epochs_total=5.0, work_done=10.0),
        Progress(work_done=10.0, work_total=math.nan),
        Progress(work_done=10.0, work_total=5.0),
        Progress(epochs_done=-3.0, epochs_total=5.0, work_done=-10.0),
    ],
)
def test_nonsense_progress_gives_a_plan(progress: Progress) -> None:
    seen = (Observation(machines=1, replicas=1, local_batch=8, step_seconds=0.5),)
    demand = job("a", workers(1, 4, gpu=1), observations=seen, largest_run_size=1, progress=progress)
    assert 1 <= sizes(plan(state(machines(1, gpu=4), (demand,))))["a"] <= 2


def test_machine_that_reports_less_than_its_pods_request_takes_nothing_new() -> None:
    pods = (foreign("f", "m0", cpu=9),)
    result = plan(state(machines(2, cpu=4), (job("a", workers(1, 9, cpu=1)),), pods))
    assert set(result.decisions[0].placement["worker"]) == {"m1"}


def test_pod_on_an_unknown_machine_holds_nothing() -> None:
    demand = job("a", workers(1, 4, cpu=1))
    lost = Pod(name="a-worker-0", requests={"cpu": 1}, machine="gone", job="a", role="worker")
    assert sizes(plan(state(machines(1, cpu=4), (demand,), (lost,)))) == {"a": 4}


def test_state_without_jobs_gives_an_empty_plan() -> None:
    assert plan(state(machines(2, cpu=4))).decisions == ()


def test_job_that_requests_nothing_gets_its_maximum() -> None:
    assert sizes(plan(state(machines(1, cpu=4), (job("a", workers(1, 5)),)))) == {"a": 5}


def test_resource_that_no_machine_has_is_rejected_by_name_of_the_job() -> None:
    result = plan(state(machines(1, cpu=4), (job("a", workers(1, 5, tpu=1)),)))
    assert "even when they are empty" in result.decisions[0].reason
