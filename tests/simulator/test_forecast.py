"""Running the planner forward from the state of a cluster."""

from __future__ import annotations

import pytest

from elasticdl.scheduling.cluster import ClusterState, Machine, Pod
from elasticdl.scheduling.demand import JobDemand, Observation, Progress, RoleGroup
from elasticdl.simulator.forecast import forecast


def demand(
    name: str, *, low: int, high: int, work: float | None, observations: tuple[Observation, ...] = ()
) -> JobDemand:
    return JobDemand(
        name=name,
        groups=(RoleGroup(role="worker", minimum=low, maximum=high, requests={"cpu": 1000}),),
        progress=Progress(work_total=work),
        observations=observations,
        largest_run_size=high if observations else 0,
        resize_cost_seconds=0.0,
    )


def state(*jobs: JobDemand, pods: tuple[Pod, ...] = ()) -> ClusterState:
    machines = tuple(Machine(name=f"m{n}", allocatable={"cpu": 4000}) for n in range(2))
    return ClusterState(now_seconds=0.0, machines=machines, jobs=jobs, pods=pods)


def worker(job: str, number: int, machine: str) -> Pod:
    return Pod(name=f"{job}-{number}", requests={"cpu": 1000}, machine=machine, job=job, role="worker")


def test_waiting_job_starts_and_ends() -> None:
    outlook = forecast(state(demand("a", low=2, high=2, work=100.0))).outlooks["default/a"]
    assert outlook.starts_in == pytest.approx(4, abs=3)
    assert outlook.ends_in == pytest.approx(54, abs=6)


def test_running_job_ends_by_its_measured_speed() -> None:
    seen = Observation.from_throughput(machines=1, replicas=2, samples_per_second=50.0)
    job = demand("a", low=2, high=2, work=1000.0, observations=(seen,))
    pods = (worker("a", 0, "m0"), worker("a", 1, "m0"))
    outlook = forecast(state(job, pods=pods)).outlooks["default/a"]
    assert outlook.starts_in == 0
    assert outlook.ends_in == pytest.approx(20, abs=1)


def test_extra_job_delays_a_running_one() -> None:
    job = demand("a", low=1, high=8, work=4000.0)
    pods = tuple(worker("a", n, f"m{n // 4}") for n in range(8))
    before = forecast(state(job, pods=pods)).outlooks["default/a"]
    both = forecast(state(job, pods=pods), demand("b", low=4, high=4, work=400.0)).outlooks
    assert both["default/b"].starts_in is not None
    assert both["default/b"].starts_in < 20
    assert (both["default/a"].ends_in or 0) > (before.ends_in or 0)
    assert min(size for _, size in both["default/a"].sizes) == 4


def test_job_without_known_end_runs_on() -> None:
    outlook = forecast(state(demand("a", low=1, high=2, work=None))).outlooks["default/a"]
    assert outlook.starts_in is not None
    assert outlook.ends_in is None


def test_pods_of_others_keep_their_room() -> None:
    other = Pod(name="web", requests={"cpu": 4000}, machine="m0")
    result = forecast(state(demand("a", low=5, high=5, work=10.0), pods=(other,)))
    assert "larger than the cluster" in result.outlooks["default/a"].rejected


def test_jobs_of_two_namespaces_may_share_a_name() -> None:
    one = demand("a", low=1, high=1, work=10.0)
    two = JobDemand(name="a", namespace="team", groups=one.groups, progress=one.progress)
    assert set(forecast(state(one, two)).outlooks) == {"default/a", "team/a"}
