"""Short ways to describe workloads in tests."""

from __future__ import annotations

from elasticdl.scheduling.cluster import Machine
from elasticdl.scheduling.demand import RoleGroup
from elasticdl.scheduling.requirements import PODS
from elasticdl.simulator.engine import Simulation
from elasticdl.simulator.policies import make_policy
from elasticdl.simulator.run_result import JobResult, RunResult
from elasticdl.simulator.work import LinearWork
from elasticdl.simulator.workload import CPU, Rules, Service, Workload, WorkloadJob


def machines(count: int, cpus: int, **limits: int) -> tuple[Machine, ...]:
    allocatable = {CPU: cpus * 1000, **limits}
    return tuple(Machine(name=f"m{n}", allocatable=allocatable) for n in range(count))


def job(
    name: str,
    *,
    at: float = 0.0,
    low: int = 1,
    high: int = 1,
    work: float = 100.0,
    cpus: int = 1,
    ps: int = 0,
    ps_cpus: int = 1,
    requested: int | None = None,
    priority: int = 0,
) -> WorkloadJob:
    groups = []
    if ps:
        groups.append(RoleGroup(role="ps", minimum=ps, maximum=ps, requests={CPU: ps_cpus * 1000}))
    groups.append(RoleGroup(role="worker", minimum=low, maximum=high, requests={CPU: cpus * 1000}))
    return WorkloadJob(
        name=name,
        submitted_at_seconds=at,
        groups=tuple(groups),
        requested=requested or high,
        work=LinearWork(seconds=work),
        priority=priority,
    )


def run(
    jobs: list[WorkloadJob],
    policy: str,
    *,
    count: int = 2,
    cpus: int = 4,
    pods: int | None = None,
    rules: Rules | None = None,
    services: tuple[Service, ...] = (),
    horizon: float | None = None,
    seed: int = 0,
) -> RunResult:
    workload = Workload(
        name="test",
        machines=machines(count, cpus, **({} if pods is None else {PODS: pods})),
        jobs=tuple(jobs),
        services=services,
        rules=rules or Rules(interval=10.0, reacts=True, reaction=0.0, resize_cost=0.0),
        horizon=horizon,
    )
    return Simulation(workload, make_policy(policy), seed=seed).run()


def of(result: RunResult, name: str) -> JobResult:
    return next(one for one in result.jobs if one.name == name)
