"""Published experiments as workloads: two of PaddlePaddle EDL, two of ElasticDL.

Each says what was published and what had to be assumed. The machines, the pods and their times come from
the reports and from the logs that were published with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from elasticdl.scheduling.cluster import Machine
from elasticdl.scheduling.demand import RoleGroup
from elasticdl.simulator.work import LinearWork
from elasticdl.simulator.workload import CPU, GIB, MEMORY, Rules, Service, Workload, WorkloadJob

# The experiments of EDL ran on Kubernetes 1.6. Its scheduler tried an unschedulable pod again after 1, 2, 4 …
# 60 seconds; pods ran 2 to 4 seconds after they were bound, and were gone 2 seconds after they were deleted.
_EDL_RULES = Rules(
    interval=5.0,
    reacts=True,
    reaction=1.0,
    resize_cost=0.0,
    pod_start=2.0,
    start_jitter=2.0,
    pod_stop=2.0,
    scheduler_backoff=60.0,
)
# The experiment without autoscaling leaves 14 of 20 jobs waiting until its end, on average 308.5 s over all
# 20: it ended after 590 s.
EDL_CASE1_SECONDS = 590.0
EDL_CASE2_SECONDS = 700.0
EDL_CASE2_STEPS = (
    (0.0, 400),
    (110.0, 300),
    (200.0, 200),
    (290.0, 100),
    (380.0, 200),
    (470.0, 300),
    (560.0, 400),
)


def edl_machines() -> tuple[Machine, ...]:
    """133 machines, 86 with 12 CPUs and 47 with 28. Their memory is not published; it is assumed not to be
    scarce.
    """
    small = {CPU: 12_000, MEMORY: 64 * GIB}
    large = {CPU: 28_000, MEMORY: 128 * GIB}
    return tuple(Machine(name=f"small-{n:02d}", allocatable=small) for n in range(86)) + tuple(
        Machine(name=f"large-{n:02d}", allocatable=large) for n in range(47)
    )


def _edl_job(number: int, *, gap: float, requested: int = 60) -> WorkloadJob:
    """A master of 1 CPU, 10 parameter servers of 4 CPUs, 2 to 60 trainers of 5 CPUs; it outlasts the
    experiment.
    """
    return WorkloadJob(
        name=f"job-{number:02d}",
        submitted_at_seconds=number * gap,
        groups=(
            RoleGroup(role="master", minimum=1, maximum=1, requests={CPU: 1_000, MEMORY: GIB}),
            RoleGroup(role="ps", minimum=10, maximum=10, requests={CPU: 4_000, MEMORY: 5 * GIB}),
            RoleGroup(role="worker", minimum=2, maximum=60, requests={CPU: 5_000, MEMORY: 8 * GIB}),
        ),
        requested=requested,
        work=LinearWork(seconds=math.inf),
    )


def edl_case1() -> Workload:
    """EDL, a cluster of training jobs only: 20 jobs, 12 s apart."""
    return Workload(
        name="edl-case1",
        machines=edl_machines(),
        jobs=tuple(_edl_job(number, gap=12.0) for number in range(20)),
        rules=_EDL_RULES,
        horizon=EDL_CASE1_SECONDS,
    )


def edl_case2() -> Workload:
    """EDL, training beside a web service: 400 NGINX pods of 3 CPUs shrink to 100 and grow back, 100 every 90
    s; 6 jobs, 8 s apart.
    """
    nginx = Service(name="nginx", requests={CPU: 3_000, MEMORY: GIB}, targets=EDL_CASE2_STEPS)
    jobs = tuple(_edl_job(number, gap=8.0, requested=15) for number in range(6))
    return Workload(
        name="edl-case2",
        machines=edl_machines(),
        # NGINX is there before the first job.
        jobs=tuple(replace(job, submitted_at_seconds=job.submitted_at_seconds + 10.0) for job in jobs),
        services=(nginx,),
        # The scheduler of NGINX decides how soon its pods run; the present one, for every policy.
        rules=replace(_EDL_RULES, scheduler_backoff=0.0),
        horizon=EDL_CASE2_SECONDS,
    )


# A job alone takes 395 s, of which about 15 s pass before it trains.
_TWO_JOB_SECONDS = 380.0


def two_jobs() -> Workload:
    """ElasticDL, two jobs of 13 CPUs on 24 CPUs, the second 30 s later.

    The report gives totals. They fit a master of 1 CPU, a parameter server of 4 and two workers of 4 CPUs
    each, on three machines of 8.
    """
    groups = (
        RoleGroup(role="master", minimum=1, maximum=1, requests={CPU: 1_000}),
        RoleGroup(role="ps", minimum=1, maximum=1, requests={CPU: 4_000}),
        RoleGroup(role="worker", minimum=1, maximum=2, requests={CPU: 4_000}),
    )
    return Workload(
        name="two-jobs",
        machines=tuple(Machine(name=f"machine-{n}", allocatable={CPU: 8_000}) for n in range(3)),
        jobs=tuple(
            WorkloadJob(
                name=f"job-{number}",
                submitted_at_seconds=30.0 * number,
                groups=groups,
                requested=2,
                work=LinearWork(seconds=2 * _TWO_JOB_SECONDS),
            )
            for number in range(2)
        ),
        rules=Rules(interval=15.0, reacts=True, resize_cost=0.0, pod_start=14.0, pod_stop=2.0),
    )


def nginx_colocation() -> Workload:
    """ElasticDL beside NGINX: one job of up to 294 CPUs on 302, NGINX between 0 and 100 pods of 2 CPUs as its
    load changes.

    The steps are those of the published measurement. A master of 2 CPUs, 3 parameter servers and up to 70
    workers of 4 CPUs add up to its 294.
    """
    nginx = Service(
        name="nginx",
        requests={CPU: 2_000},
        targets=(
            (0.0, 0), (160.0, 30), (660.0, 57), (845.0, 63), (1090.0, 65), (1170.0, 95), (1427.0, 100), (1660.0, 65),
            (2160.0, 30),
        ),
    )  # fmt: skip
    job = WorkloadJob(
        name="training",
        submitted_at_seconds=5.0,
        groups=(
            RoleGroup(role="master", minimum=1, maximum=1, requests={CPU: 2_000}),
            RoleGroup(role="ps", minimum=3, maximum=3, requests={CPU: 4_000}),
            RoleGroup(role="worker", minimum=4, maximum=70, requests={CPU: 4_000}),
        ),
        requested=70,
        work=LinearWork(seconds=math.inf),
    )
    return Workload(
        name="nginx",
        machines=tuple(Machine(name=f"machine-{n:02d}", allocatable={CPU: 16_000}) for n in range(19)),
        jobs=(job,),
        services=(nginx,),
        rules=Rules(interval=15.0, reacts=True, resize_cost=0.0, pod_start=3.0, pod_stop=2.0),
        horizon=2650.0,
    )


SCENARIOS: Mapping[str, Callable[[], Workload]] = MappingProxyType(
    {"edl-case1": edl_case1, "edl-case2": edl_case2, "two-jobs": two_jobs, "nginx": nginx_colocation}
)
