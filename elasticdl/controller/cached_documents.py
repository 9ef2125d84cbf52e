"""The part of each object that the controller keeps in memory: enough to plan and to explain, and no more.

A cluster with ten thousand pods would otherwise take hundreds of megabytes. Pure functions from a document to a
smaller document of the same shape, so that everything that reads documents reads these too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elasticdl.jobs.job_record import SNAPSHOT_KEY
from elasticdl.platforms.kubernetes.client import Document
from elasticdl.platforms.kubernetes.naming import APP, JOB_LABEL

_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
)


def slim_pod(pod: Document) -> Document:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    is_ours = is_of_job(pod)
    is_bound = bool(spec.get("nodeName"))
    metadata = _picked(pod["metadata"], _METADATA)
    kept: Document = _picked(spec, ("nodeName", "priority", "overhead", "resources"))
    for name in ("containers", "initContainers"):
        if containers := spec.get(name):
            kept[name] = [_picked(each, ("name", "resources", "restartPolicy")) for each in containers]
    if is_ours or not is_bound:
        kept |= _picked(spec, ("nodeSelector", "tolerations", "schedulingGates"))
    said = _picked(status, ("phase", "reason", "message"))
    if is_ours:
        metadata |= _picked(pod["metadata"], ("labels", "ownerReferences"))
        said |= _picked(status, ("conditions", "containerStatuses", "initContainerStatuses"))
    return {"kind": "Pod", "metadata": metadata, "spec": kept, "status": said}


def slim_node(node: Document) -> Document:
    status = node.get("status") or {}
    metadata = _picked(node["metadata"], (*_METADATA, "labels"))
    kept = {
        "allocatable": status.get("allocatable") or {},
        "conditions": [
            _picked(each, ("type", "status"))
            for each in status.get("conditions") or ()
            if each.get("type") == "Ready"
        ],
    }
    spec = _picked(node.get("spec") or {}, ("taints", "unschedulable"))
    return {"kind": "Node", "metadata": metadata, "spec": spec, "status": kept}


def slim_record(record: Document) -> Document:
    """The master's snapshot of itself is large and only for masters."""
    metadata = _picked(record["metadata"], (*_METADATA, "labels", "annotations", "ownerReferences"))
    data = {key: text for key, text in (record.get("data") or {}).items() if key != SNAPSHOT_KEY}
    return {"kind": "ConfigMap", "metadata": metadata, "data": data}


def slim_training_job(job: Document) -> Document:
    metadata = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
    return {**job, "metadata": metadata}


def is_of_job(pod: Document) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return labels.get("app") == APP and JOB_LABEL in labels


def _picked(document: Document, keys: Iterable[str]) -> dict[str, Any]:
    return {key: document[key] for key in keys if document.get(key) not in (None, "", [], {})}
