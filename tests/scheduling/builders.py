"""Short ways to write clusters, jobs and pods in tests, and the checks that every plan must pass."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.scheduling.cluster import ClusterState, Machine, Pod, Quota
from elasticdl.scheduling.decisions import Decision, Plan
from elasticdl.scheduling.demand import JobDemand, RoleGroup
from elasticdl.scheduling.requirements import PODS

NOW = 1000.0


def machines(count: int, **allocatable: int) -> tuple[Machine, ...]:
    return tuple(Machine(name=f"m{number}", allocatable=allocatable) for number in range(count))


def workers(minimum: int, maximum: int, **requests: int) -> RoleGroup:
    return RoleGroup(role="worker", minimum=minimum, maximum=maximum, requests=requests)


def fixed(role: str, count: int, **requests: int) -> RoleGroup:
    return RoleGroup(role=role, minimum=count, maximum=count, requests=requests)


def job(name: str, *groups: RoleGroup, **fields: object) -> JobDemand:
    return JobDemand(name=name, groups=groups, **fields)  # type: ignore[arg-type]


def pods_of(demand: JobDemand, role: str, spots: Mapping[str, int], first: int = 0) -> tuple[Pod, ...]:
    """Running pods of a job, numbered in the order of the machines."""
    group = next(group for group in demand.groups if group.role == role)
    names = [machine for machine, count in spots.items() for _ in range(count)]
    return tuple(
        Pod(
            name=f"{demand.name}-{role}-{first + number}",
            namespace=demand.namespace,
            requests=group.requests,
            machine=machine,
            priority=demand.priority,
            job=demand.name,
            role=role,
        )
        for number, machine in enumerate(names)
    )


def foreign(name: str, machine: str | None = None, *, priority: int = 0, **requests: int) -> Pod:
    return Pod(name=name, namespace="other", requests=requests, machine=machine, priority=priority)


def state(
    nodes: tuple[Machine, ...],
    jobs: tuple[JobDemand, ...] = (),
    pods: tuple[Pod, ...] = (),
    quotas: tuple[Quota, ...] = (),
) -> ClusterState:
    return ClusterState(now_seconds=NOW, machines=nodes, jobs=jobs, pods=pods, quotas=quotas)


def decision(plan: Plan, name: str, namespace: str = "default") -> Decision:
    return plan.of(f"{namespace}/{name}")


def sizes(plan: Plan) -> dict[str, int]:
    return {item.job.partition("/")[2]: item.size for item in plan.decisions}


def overcommitted(after: ClusterState) -> list[str]:
    """Machines whose pods request more than they have, with the amounts; and those with too many pods."""
    used: dict[str, dict[str, int]] = {machine.name: {} for machine in after.machines}
    limits = {machine.name: machine.allocatable for machine in after.machines}
    for pod in after.pods:
        if pod.machine in used and pod.occupies_resources:
            limited = PODS in limits[pod.machine]
            for name, quantity in (*pod.requests.items(), *([(PODS, 1)] if limited else [])):
                used[pod.machine][name] = used[pod.machine].get(name, 0) + quantity
    return [
        f"{machine.name}: {name} {quantity} > {machine.allocatable.get(name, 0)}"
        for machine in after.machines
        for name, quantity in used[machine.name].items()
        if quantity > machine.allocatable.get(name, 0)
    ]
