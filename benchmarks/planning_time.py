"""The time of one plan, by the size of the cluster: a full plan, and a plan after ten changes.

Half of the jobs have measurements and half have none; each has a master, two parameter servers and 1 to 16 workers. The
first plan of a new planner counts as full. Its plan is applied, ten things change (pods of others appear, jobs end and
arrive), and the same planner plans again.
"""

from __future__ import annotations

import random
import resource
import statistics
import time
from dataclasses import replace

from benchmarks.report import Result
from elasticdl.scheduling.cluster import Changes, ClusterState, Machine, Pod
from elasticdl.scheduling.demand import JobDemand, Observation, Progress, RoleGroup
from elasticdl.scheduling.planner import Planner
from elasticdl.scheduling.projection import apply_plan

NAME = "planning_time"
_GIB = 1024**3
_SIZES = ((10, 100), (100, 1_000), (300, 3_000), (1_000, 10_000))
_FULL_SECONDS, _INCREMENTAL_SECONDS = 1.0, 0.05


def run(*, quick: bool, repeat: int) -> list[Result]:
    results = []
    for jobs, machines in _SIZES[:2] if quick else _SIZES:
        full, incremental = [], []
        for seed in range(1 if quick else min(repeat, 3)):
            first, second = measure(jobs, machines, seed)
            full.append(first)
            incremental.append(second)
        is_target = (jobs, machines) == _SIZES[-1]
        for kind, values, limit in (
            ("full", full, _FULL_SECONDS),
            ("ten changes", incremental, _INCREMENTAL_SECONDS),
        ):
            seconds = statistics.median(values)
            results.append(
                Result(
                    benchmark=NAME,
                    case=f"{jobs:,} jobs on {machines:,} machines, {kind}",
                    unit="ms",
                    us=1000 * seconds,
                    target=f"< {1000 * limit:g} ms" if is_target else "",
                    passed=seconds < limit if is_target else None,
                    note=f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
                    if is_target and kind == "full"
                    else "",
                )
            )
    return results


def measure(jobs: int, machines: int, seed: int) -> tuple[float, float]:
    """Processor seconds for a full plan, and for the plan after ten changes."""
    state = random_state(jobs, machines, seed)
    planner = Planner()
    begun = time.process_time()
    plan = planner.plan(state)
    full = time.process_time() - begun
    after = apply_plan(state, plan)
    settled = planner.plan(after)
    steady = apply_plan(after, settled)
    planner.plan(steady)
    changes = _change(steady, random.Random(seed))
    begun = time.process_time()
    planner.replan(changes)
    return full, time.process_time() - begun


def random_state(jobs: int, machines: int, seed: int) -> ClusterState:
    chance = random.Random(seed)
    hardware = [
        Machine(
            name=f"machine-{number:05d}",
            allocatable={"cpu": chance.choice((16, 32, 64)) * 1000, "memory": 256 * _GIB, "pods": 110},
        )
        for number in range(machines)
    ]
    pods = [
        Pod(
            name=f"web-{number}",
            requests={"cpu": chance.choice((1, 2, 4)) * 1000, "memory": 4 * _GIB},
            machine=chance.choice(hardware).name,
            priority=100,
        )
        for number in range(machines)
    ]
    return ClusterState(
        now_seconds=10_000.0,
        machines=tuple(hardware),
        pods=tuple(pods),
        jobs=tuple(_job(number, chance) for number in range(jobs)),
    )


def _job(number: int, chance: random.Random) -> JobDemand:
    cpus = chance.choice((2, 4, 8)) * 1000
    observations: tuple[Observation, ...] = ()
    if number % 2:
        base = chance.uniform(50, 500)
        observations = tuple(
            Observation.from_throughput(machines=size, replicas=size, samples_per_second=base * size**0.9)
            for size in (1, 2, 4)
        )
    return JobDemand(
        name=f"job-{number:04d}",
        submitted_at_seconds=float(number),
        groups=(
            RoleGroup(role="master", minimum=1, maximum=1, requests={"cpu": 1000, "memory": _GIB}),
            RoleGroup(role="ps", minimum=2, maximum=2, requests={"cpu": 2000, "memory": 8 * _GIB}),
            RoleGroup(role="worker", minimum=1, maximum=16, requests={"cpu": cpus, "memory": 8 * _GIB}),
        ),
        observations=observations,
        progress=Progress(work_total=1e7 if observations else None),
        largest_run_size=4 if observations else 0,
    )


def _change(state: ClusterState, chance: random.Random) -> Changes:
    """Five jobs end, three arrive, and two pods of others are pending."""
    gone = {job.key for job in chance.sample(list(state.jobs), min(5, len(state.jobs) // 2))}
    return Changes(
        now_seconds=state.now_seconds + 60,
        removed_jobs=tuple(sorted(gone)),
        removed_pods=tuple(pod.key for pod in state.pods if pod.job_key in gone),
        jobs=tuple(replace(_job(number, chance), name=f"new-{number}") for number in range(3)),
        pods=tuple(
            Pod(name=f"late-{number}", requests={"cpu": 2000}, machine=None, priority=100)
            for number in range(2)
        ),
    )
