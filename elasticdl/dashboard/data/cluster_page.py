"""The page of a cluster, as sections: machines with what runs on them, the queue, and the planner's decisions. Pure.

A machine is a section of its own (`machine/NAME`), so that a stream sends only those that have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from elasticdl.catalog.kubernetes.training_job import is_waiting, waiting_reason
from elasticdl.jobs.status import StatusError
from elasticdl.jobs.training_job.status import (
    DecisionRecord,
    RoleStatus,
    TrainingJobStatus,
    parse_time,
)
from elasticdl.platforms.kubernetes.client import Document
from elasticdl.scheduling.cluster import ClusterState, Machine, Pod, PodPhase

MACHINE = "machine/"
OTHERS = "other"
_CPU = "cpu"
_DECISIONS = 100
# Pods of a job in a sentence.
_NAMES = 3


def cluster_sections(
    state: ClusterState,
    training_jobs: Iterable[Document],
    series: Iterable[tuple[float, Mapping[str, float]]],
) -> dict[str, Any]:
    """`series`: moments, and the requested part of each resource then."""
    documents = list(training_jobs)
    on_machines: dict[str, list[Pod]] = {}
    for pod in state.pods:
        if pod.machine is not None and pod.occupies_resources:
            on_machines.setdefault(pod.machine, []).append(pod)
    sections: dict[str, Any] = {
        "summary": _summary(state, on_machines),
        "utilization": _series(series),
        "queue": [*_waiting_jobs(documents), *_waiting_pods(state)],
        "training_jobs": [_training_job(document) for document in documents],
        "decisions": _decisions(documents),
    }
    for machine in state.machines:
        sections[f"{MACHINE}{machine.name}"] = _machine(machine, on_machines.get(machine.name, []))
    return sections


def utilization(state: ClusterState) -> dict[str, float]:
    """Returns the requested part of what the machines offer, by resource."""
    requested, total = _amounts(state)
    return {name: requested.get(name, 0) / amount for name, amount in total.items() if amount}


def _summary(state: ClusterState, on_machines: Mapping[str, list[Pod]]) -> dict[str, Any]:
    requested, total = _amounts(state)
    return {
        "machines": len(state.machines),
        "open": sum(machine.takes_pods for machine in state.machines),
        "pods": sum(map(len, on_machines.values())),
        "resources": {
            name: {"requested": _shown(name, requested.get(name, 0)), "total": _shown(name, amount)}
            for name, amount in sorted(total.items())
            if amount
        },
    }


def _amounts(state: ClusterState) -> tuple[Counter[str], Counter[str]]:
    total: Counter[str] = Counter()
    names = set()
    for machine in state.machines:
        names.add(machine.name)
        total.update(machine.allocatable)
    requested: Counter[str] = Counter()
    for pod in state.pods:
        if pod.machine in names and pod.occupies_resources:
            requested.update(pod.requests)
    return requested, total


def _machine(machine: Machine, pods: list[Pod]) -> dict[str, Any]:
    requested: Counter[str] = Counter()
    tiles: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        requested.update(pod.requests)
        tiles[pod.job_key or OTHERS, pod.role or ""] += 1
    return {
        "name": machine.name,
        "state": _state(machine),
        "is_revocable": machine.is_revocable,
        "resources": {
            name: [_shown(name, requested.get(name, 0)), _shown(name, amount)]
            for name, amount in sorted(machine.allocatable.items())
            if amount
        },
        "tiles": [{"job": job, "role": role, "count": count} for (job, role), count in sorted(tiles.items())],
    }


def _state(machine: Machine) -> str:
    if not machine.is_ready:
        return "not ready"
    if machine.is_draining:
        return "about to be removed"
    return "cordoned" if machine.is_cordoned else "ready"


def _shown(resource: str, amount: int) -> float:
    """CPU in cores, everything else as it is."""
    return amount / 1000 if resource == _CPU else amount


def _series(series: Iterable[tuple[float, Mapping[str, float]]]) -> dict[str, Any]:
    points = list(series)
    names = sorted({name for _, shares in points for name in shares})
    return {
        "times": [round(moment, 1) for moment, _ in points],
        "shares": {name: [_rounded(shares.get(name)) for _, shares in points] for name in names},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# -- jobs ----------------------------------------------------------------------------------------------------


def _waiting_jobs(documents: Iterable[Document]) -> list[dict[str, Any]]:
    found = [
        {
            **_named(document),
            "since": parse_time(str((document.get("metadata") or {}).get("creationTimestamp") or "")),
            "reason": waiting_reason(document),
            "wants": _range(_status(document).trainer) or _wanted(document),
        }
        for document in documents
        if not _status(document).phase.is_final and (is_waiting(document) or not document.get("status"))
    ]
    return sorted(found, key=lambda job: job["since"] or 0.0)


def _waiting_pods(state: ClusterState) -> list[dict[str, Any]]:
    """Jobs of which pods have no machine yet, as the cluster's own scheduler sees it."""
    waiting: dict[tuple[str, str], list[str]] = {}
    for pod in state.pods:
        if pod.job is not None and pod.machine is None and pod.phase is PodPhase.PENDING:
            waiting.setdefault((pod.namespace, pod.job), []).append(pod.name)
    return [
        {
            "job": job,
            "namespace": namespace,
            "since": None,
            "reason": f"{_listed(sorted(pods))} {'waits' if len(pods) == 1 else 'wait'} for a machine.",
            "wants": "",
        }
        for (namespace, job), pods in sorted(waiting.items())
    ]


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMES
    shown = ", ".join(names[:_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def _training_job(document: Document) -> dict[str, Any]:
    status = _status(document)
    return {
        **_named(document),
        "phase": str(status.phase),
        "message": status.message,
        "ready": status.trainer.ready,
        "desired": status.trainer.desired,
        "range": _range(status.trainer),
        "goodput": status.goodput.ratio,
    }


def _decisions(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """The newest first, of all jobs together: who shrank, and for whom."""
    found: list[tuple[str, dict[str, Any]]] = [
        (decision.time, {**_named(document), **_decision(decision)})
        for document in documents
        for decision in _status(document).decisions
    ]
    found.sort(key=lambda each: each[0], reverse=True)
    return [decision for _, decision in found[:_DECISIONS]]


def _decision(decision: DecisionRecord) -> dict[str, Any]:
    return {
        "time": parse_time(decision.time),
        "kind": decision.kind,
        "sentence": decision.sentence,
        "before": decision.before,
        "after": decision.after,
    }


def _named(document: Document) -> dict[str, str]:
    metadata = document.get("metadata") or {}
    return {"job": str(metadata.get("name") or ""), "namespace": str(metadata.get("namespace") or "default")}


def _status(document: Document) -> TrainingJobStatus:
    """An empty status for one that this version cannot read: the job is listed all the same."""
    try:
        return TrainingJobStatus.from_document(document.get("status"))
    except StatusError:
        return TrainingJobStatus()


def _range(role: RoleStatus) -> str:
    if not role.max:
        return ""
    return f"{role.min}–{role.max}" if role.max > role.min else str(role.max)


def _wanted(document: Document) -> str:
    """Returns the desired size of the spec, before a controller has seen the job."""
    trainer = (document.get("spec") or {}).get("trainer") or {}
    low, high = trainer.get("min-instance"), trainer.get("max-instance")
    return f"{low}–{high}" if low and high and high != low else str(low or high or "")
