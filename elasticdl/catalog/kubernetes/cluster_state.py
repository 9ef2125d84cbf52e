"""Reads Kubernetes documents (nodes and pods, as the API server returns them) as the planner's input.

Plain dictionaries go in, so that it does not matter whether they come from a client, from a watch or from a
file of `kubectl get nodes,pods -A -o json`. Pods of our jobs are known by their labels. Their bounds are
not in their pods but in job records: a role whose range is not given is taken to be of fixed size.

A node or pod without the fields that the API server always sets raises a `UserError` that names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections.resources import Quantity
from elasticdl.scheduling.cluster import ClusterState, Machine, Pod, PodPhase
from elasticdl.scheduling.demand import JobDemand, RoleGroup
from elasticdl.scheduling.requirements import PODS, Taint, TaintEffect, Toleration

_CPU = "cpu"
# Not requests: what a kubelet tells about itself.
_IGNORED = (PODS, "ephemeral-storage", "attachable-volumes", "hugepages")
_EFFECTS = {effect.value: effect for effect in TaintEffect}
# Taints of machines that are about to be removed, by who sets them.
_REMOVAL_TAINTS = (
    # cluster-autoscaler
    "ToBeDeletedByClusterAutoscaler",
    # Karpenter, and before its version 1
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    # AWS Node Termination Handler; Google Kubernetes Engine
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    # Kubernetes
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
)
# Machines that an autoscaler considers to remove.
_CANDIDATE_TAINTS = (
    "DeletionCandidateOfClusterAutoscaler",
    "aws-node-termination-handler/rebalance-recommendation",
)
# Labels of spot and preemptible machines: Karpenter, EKS, GKE, AKS.
_REVOCABLE_LABELS = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}
_JOB, _ROLE, _APP = "elasticdl-job-name", "elasticdl-replica-type", "app"

Document = Mapping[str, Any]
# The fewest and the most instances of each role.
Ranges = Mapping[str, tuple[int, int]]


def state_from_documents(
    documents: Iterable[Document],
    *,
    now_seconds: float = 0.0,
    jobs: Iterable[JobDemand] = (),
    ranges: Mapping[str, Ranges] | None = None,
) -> ClusterState:
    """Returns the state of a cluster from its Node and Pod documents.

    `jobs` are taken as they are; all others are made of their pods, with the `ranges` of their roles, if given
    (by namespace/name).
    """
    machines: list[Machine] = []
    pods: list[Pod] = []
    for document in documents:
        kind = document.get("kind")
        if kind == "Node":
            machines.append(machine_of(document))
        elif kind == "Pod":
            pods.append(pod_of(document))
    known = {job.key: job for job in jobs}
    return ClusterState(
        now_seconds=now_seconds,
        machines=tuple(machines),
        pods=tuple(pods),
        jobs=(*known.values(), *_jobs_of(pods, known, ranges or {})),
    )


def machine_of(node: Document) -> Machine:
    name = _name(node, "node")
    where = f"node {name}"
    status, spec = _section(node, "status", where), node.get("spec") or {}
    conditions = {
        condition.get("type"): condition.get("status") for condition in status.get("conditions") or ()
    }
    metadata = node.get("metadata") or {}
    labels = dict(metadata.get("labels") or {})
    taints = tuple(_taint(taint, where) for taint in spec.get("taints") or ())
    tainted = {taint.key for taint in taints}
    return Machine(
        name=name,
        allocatable=_allocatable(status.get("allocatable") or {}, where),
        labels=labels,
        taints=taints,
        is_ready=conditions.get("Ready", "True") == "True",
        is_cordoned=bool(spec.get("unschedulable")),
        is_draining=bool(metadata.get("deletionTimestamp") or tainted.intersection(_REMOVAL_TAINTS)),
        is_revocable=bool(tainted.intersection(_CANDIDATE_TAINTS))
        or any(labels.get(key) == value for key, value in _REVOCABLE_LABELS.items()),
    )


def pod_of(pod: Document) -> Pod:
    name = _name(pod, "pod")
    where = f"pod {name}"
    metadata, spec = pod.get("metadata") or {}, _section(pod, "spec", where)
    labels = metadata.get("labels") or {}
    is_ours = labels.get(_APP) == "elasticdl" and _JOB in labels
    phase = str((pod.get("status") or {}).get("phase") or "Pending")
    return Pod(
        name=name,
        namespace=str(metadata.get("namespace") or "default"),
        requests=_requests(spec, where),
        machine=spec.get("nodeName") or None,
        priority=int(spec.get("priority") or 0),
        job=str(labels[_JOB]) if is_ours else None,
        role=str(labels.get(_ROLE) or "worker") if is_ours else None,
        # A phase that is not known holds its requests, as a running pod does.
        phase=next((one for one in PodPhase if one.value == phase), PodPhase.RUNNING),
        node_selector=dict(spec.get("nodeSelector") or {}),
        tolerations=tuple(toleration_of(one, where) for one in spec.get("tolerations") or ()),
    )


def _jobs_of(
    pods: Iterable[Pod], known: Mapping[str, JobDemand], ranges: Mapping[str, Ranges]
) -> list[JobDemand]:
    groups: dict[str, dict[str, list[Pod]]] = {}
    for pod in pods:
        if pod.job_key is not None and pod.role is not None and pod.occupies_resources:
            groups.setdefault(pod.job_key, {}).setdefault(pod.role, []).append(pod)
    jobs = []
    for key, roles in sorted(groups.items()):
        if key in known:
            continue
        first = next(iter(roles.values()))[0]
        sizes = {role: (len(members), len(members)) for role, members in roles.items()} | dict(
            ranges.get(key, {})
        )
        jobs.append(
            JobDemand(
                name=first.job or "",
                namespace=first.namespace,
                priority=max(pod.priority for members in roles.values() for pod in members),
                groups=tuple(
                    RoleGroup(
                        role=role,
                        minimum=sizes[role][0],
                        maximum=sizes[role][1],
                        requests=members[0].requests,
                        node_selector=members[0].node_selector,
                        tolerations=members[0].tolerations,
                    )
                    for role, members in sorted(roles.items())
                ),
            )
        )
    return jobs


def _requests(spec: Document, where: str) -> dict[str, int]:
    """Returns the requests that the scheduler counts: the sum of all containers and sidecars, or the init container
    during which most is in use, plus the overhead. A sidecar is an init container that is restarted: later ones run
    beside it (Kubernetes 1.28). Requests of the whole pod replace the sum of its containers (1.32).
    """
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(total, _requests_of(container, where))
    for container in spec.get("initContainers") or ():
        is_sidecar = container.get("restartPolicy") == "Always"
        used = dict(sidecars)
        _add(used, _requests_of(container, where))
        if is_sidecar:
            sidecars = used
        most = {key: max(most.get(key, 0), used.get(key, 0)) for key in most.keys() | used.keys()}
    _add(total, sidecars)
    for key, value in most.items():
        total[key] = max(total.get(key, 0), value)
    total |= _requests_of(spec, where)
    _add(total, _resources(spec.get("overhead") or {}, where))
    return total


def _requests_of(container: Document, where: str) -> dict[str, int]:
    return _resources((container.get("resources") or {}).get("requests") or {}, where)


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for key, value in amounts.items():
        total[key] = total.get(key, 0) + value


def _resources(quantities: Document, where: str) -> dict[str, int]:
    return {
        str(key): _units(str(value), scale=1000 if key == _CPU else 1, where=f"{where}: {key}")
        for key, value in quantities.items()
        if not str(key).startswith(_IGNORED)
    }


def _allocatable(quantities: Document, where: str) -> dict[str, int]:
    """What pods may request, and how many of them the machine takes."""
    found = _resources(quantities, where)
    if PODS in quantities:
        found[PODS] = _units(str(quantities[PODS]), scale=1, where=f"{where}: {PODS}")
    return found


def _units(text: str, *, scale: int, where: str) -> int:
    """Reads a quantity (`500m`, `8Gi`, `4`) in units of 1/scale; parts of a unit count as a whole one."""
    try:
        return math.ceil(Quantity(text=text.strip()).amount * scale)
    except BadValue:
        raise UserError(
            f"{where}: {text!r} is no quantity of at least zero.",
            hint="Write 4, 0.5 or 500m; for memory 8Gi or 512Mi.",
        ) from None


def _taint(taint: Document, where: str) -> Taint:
    effect = _EFFECTS.get(str(taint.get("effect")))
    if effect is None:
        raise UserError(f"{where}: unknown effect {taint.get('effect')!r} of a taint.")
    return Taint(key=str(taint.get("key") or ""), value=str(taint.get("value") or ""), effect=effect)


def toleration_of(toleration: Document, where: str) -> Toleration:
    exists = toleration.get("operator") == "Exists"
    effect = toleration.get("effect")
    if effect is not None and effect not in _EFFECTS:
        raise UserError(f"{where}: unknown effect {effect!r} of a toleration.")
    return Toleration(
        key=toleration.get("key") or None,
        value=None if exists else str(toleration.get("value") or ""),
        effect=_EFFECTS[effect] if effect else None,
    )


def _name(document: Document, what: str) -> str:
    name = (document.get("metadata") or {}).get("name")
    if not name:
        raise UserError(
            f"A {what} has no metadata.name.", hint="Use the output of kubectl get nodes,pods -A -o json."
        )
    return str(name)


def _section(document: Document, key: str, where: str) -> Document:
    section = document.get(key)
    if not isinstance(section, Mapping):
        raise UserError(f"{where} has no {key}.", hint="Use the output of kubectl get nodes,pods -A -o json.")
    return section
