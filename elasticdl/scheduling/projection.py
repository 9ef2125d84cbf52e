"""The state of a cluster after a plan has been applied: pods created, bound and deleted as it says.

Why it exists: `elasticdl plan` shows what a plan leads to, and the tests check that planning again changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from elasticdl.scheduling.cluster import ClusterState, Pod
from elasticdl.scheduling.decisions import Hold, Plan, Reject


def apply_plan(state: ClusterState, plan: Plan) -> ClusterState:
    """Returns the state with every decision carried out and reserved pods of others bound."""
    decisions = {decision.job: decision for decision in plan.decisions}
    victims: set[str] = set()
    for decision in plan.decisions:
        victims.update(getattr(decision, "victims", ()))
    pods: list[Pod] = []
    # Instances that each job still needs, per role and machine.
    needed: dict[str, dict[str, dict[str, int]]] = {}
    for key, decision in decisions.items():
        if not isinstance(decision, Hold | Reject):
            needed[key] = {role: dict(machines) for role, machines in decision.placement.items()}
    unbound: list[Pod] = []
    numbers: dict[tuple[str, str], int] = {}
    for pod in state.pods:
        if pod.key in plan.reserved:
            pods.append(replace(pod, machine=plan.reserved[pod.key]))
            continue
        if pod.job_key is not None and pod.role is not None:
            tail = pod.name.rpartition("-")[2]
            slot = (pod.job_key, pod.role)
            numbers[slot] = max(numbers.get(slot, 0), int(tail) + 1 if tail.isdigit() else 0)
        if pod.key in victims:
            continue
        wanted = needed.get(pod.job_key or "", {}).get(pod.role or "")
        if wanted is None or not pod.occupies_resources:
            pods.append(pod)
        elif pod.machine is None:
            unbound.append(pod)
        else:
            if wanted.get(pod.machine, 0) > 0:
                wanted[pod.machine] -= 1
            pods.append(pod)
    for pod in unbound:
        wanted = needed[pod.job_key or ""][pod.role or ""]
        machine = next((name for name, count in sorted(wanted.items()) if count > 0), None)
        if machine is not None:
            wanted[machine] -= 1
        pods.append(replace(pod, machine=machine))
    jobs = {job.key: job for job in state.jobs}
    for key, roles in needed.items():
        job = jobs[key]
        groups = {group.role: group for group in job.groups}
        for role, machines in roles.items():
            for machine, count in machines.items():
                for _ in range(count):
                    number = numbers.get((key, role), 0)
                    numbers[key, role] = number + 1
                    pods.append(
                        Pod(
                            name=f"{job.name}-{role}-{number}",
                            namespace=job.namespace,
                            requests=groups[role].requests,
                            machine=machine,
                            priority=job.priority,
                            job=job.name,
                            role=role,
                        )
                    )
    return replace(state, pods=tuple(pods))
