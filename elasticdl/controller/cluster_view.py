"""The cached cluster: machines, pods, TrainingJobs, job records and priority classes, and their changes.

Changes arrive one at a time, in any order. Each updates the planner's input, so that the cost of a plan after one
change is that of the change. No Kubernetes client, no clock.

A terminating pod counts as gone: its room has been assigned already, to the instances for which it was preempted.
Counting it would take the same room from its job twice.

Failure modes
    An object that cannot be read (a machine with a negative capacity) is skipped, and logged once per version; planning
    for the others continues.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from elasticdl.catalog.kubernetes.cluster_state import machine_of, pod_of
from elasticdl.controller.cached_documents import is_of_job
from elasticdl.errors import UserError
from elasticdl.jobs.job_record import STATUS_KEY, JobRecord
from elasticdl.jobs.status import JobStatus, StatusError
from elasticdl.jobs.training_job.parsing import (
    FieldProblem,
    InvalidTrainingJob,
    parse_training_job,
    training_job_head,
)
from elasticdl.jobs.training_job.resource import TrainingJob
from elasticdl.platforms.kubernetes.client import Document, owners_of, uid_of
from elasticdl.platforms.kubernetes.naming import JOB_LABEL, ROLE_LABEL
from elasticdl.platforms.kubernetes.pods.status import leaving, on_its_way
from elasticdl.platforms.platform import MASTER_ROLE
from elasticdl.scheduling.cluster import Machine, Pod
from elasticdl.scheduling.errors import SchedulingInputError

log = logging.getLogger("elasticdl.controller")

_Read = TypeVar("_Read")
# The fields of a master's report (`jobs/status`) that are more than progress.
_OF_STATUS = (
    "version",
    "state",
    "phase",
    "message",
    "trouble",
    "started",
    "targets",
    "epoch",
    "generation",
    "observedGeneration",
    "desiredResult",
    "readyToPause",
)
_OF_NODES = ("name", "phase", "reason", "message", "draining", "joined")


@dataclass(frozen=True, kw_only=True)
class ManagedJob:
    """A TrainingJob as it is in the cluster. `problems`: why its spec cannot be run; then `job.spec` says nothing."""

    job: TrainingJob
    document: Document
    problems: tuple[FieldProblem, ...] = ()

    @property
    def id(self) -> str:
        """Tells apart TrainingJobs of both API groups."""
        return job_id_of(self.job)

    @property
    def is_suspended(self) -> bool:
        """Kueue admits a job of a queue by setting `suspend` to false; until it is set, the job waits."""
        if self.job.queue_name and (self.document.get("spec") or {}).get("suspend") is not False:
            return True
        return self.job.spec.suspend


@dataclass(frozen=True, kw_only=True)
class CachedRecord:
    """A job record. Its texts are read when they are asked for: masters write every few seconds."""

    document: Document
    record: JobRecord

    @cached_property
    def status(self) -> JobStatus:
        """Returns the status that the master has reported; an empty status if it cannot be read."""
        return self._read[0]

    @property
    def trouble(self) -> str:
        """Why the master's report cannot be read."""
        return self._read[1]

    @property
    def owners(self) -> set[str]:
        return owners_of(self.document)

    def differs(self, other: CachedRecord | None) -> bool:
        """Whether there is more to it than progress."""
        return other is None or self._apart_from_progress != other._apart_from_progress

    @cached_property
    def _read(self) -> tuple[JobStatus, str]:
        try:
            return self.record.status(), ""
        except StatusError as error:
            return JobStatus(), error.message

    @cached_property
    def _apart_from_progress(self) -> tuple[object, ...]:
        metadata, data = self.document["metadata"], self.record.data
        texts = {key: text for key, text in data.items() if key != STATUS_KEY}
        return (
            metadata.get("uid"),
            metadata.get("ownerReferences"),
            texts,
            _reported(data.get(STATUS_KEY, "")),
        )


@dataclass(kw_only=True)
class PlannerChanges:
    """Keys of what differs from the state that the planner has seen last."""

    machines: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.machines or self.pods)


class ClusterView:
    """`on_job_change`: called with the key (namespace/name) of each job of which more than the progress has changed."""

    def __init__(self, on_job_change: Callable[[str], None]) -> None:
        self.machines: dict[str, Machine] = {}
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, ManagedJob] = {}
        self.records: dict[str, CachedRecord] = {}
        self.priorities: dict[str, int] = {}
        self.default_priority = 0
        self.changes = PlannerChanges()
        self.limits: dict[str, Mapping[str, int]] = {}
        # Documents of the pods of jobs, by job and name.
        self._job_pods: dict[str, dict[str, Document]] = {}
        # The events of pods that machines do not start, by uid.
        self._pod_troubles: dict[str, str] = {}
        self._ids_by_key: dict[str, set[str]] = {}
        self._on_job_change = on_job_change

    # -- reading ---------------------------------------------------------------------------------------------

    def pods_of(self, key: str) -> Mapping[str, Document]:
        """Documents of a job's pods by name."""
        return self._job_pods.get(key, {})

    def master_of(self, key: str) -> Document | None:
        return next((pod for pod in self.pods_of(key).values() if _role(pod) == MASTER_ROLE), None)

    def pod_trouble(self, pod: Document) -> str:
        return self._pod_troubles.get(uid_of(pod), "")

    def jobs_of(self, key: str) -> list[ManagedJob]:
        """The TrainingJobs of a name, the oldest first: at most one of each API group."""
        found = [self.jobs[each] for each in self._ids_by_key.get(key, ())]
        return sorted(found, key=lambda managed: (managed.job.created_seconds, managed.id))

    def owner_of(self, key: str) -> ManagedJob | None:
        """The TrainingJob that a name belongs to: the one whose record is there, else the oldest."""
        found = self.jobs_of(key)
        record = self.records.get(key)
        if record is not None:
            return next((managed for managed in found if managed.job.uid in record.owners), None)
        return found[0] if found else None

    def priority(self, class_name: str) -> int:
        return self.priorities.get(class_name, self.default_priority) if class_name else self.default_priority

    def is_lost_machine(self, name: str | None) -> bool:
        """Whether the machine no longer exists, or is not ready."""
        return name is not None and (name not in self.machines or not self.machines[name].is_ready)

    # -- changes ---------------------------------------------------------------------------------------------

    def apply_node(self, document: Document, *, gone: bool) -> None:
        name = str(document["metadata"]["name"])
        before = self.machines.get(name)
        after = None if gone else _read(machine_of, document, f"node {name}")
        if before == after:
            return
        _store(self.machines, name, after)
        self.changes.machines.add(name)
        if before is None or after is None or _is_usable(before) != _is_usable(after):
            for key, pods in self._job_pods.items():
                if any((pod["spec"] or {}).get("nodeName") == name for pod in pods.values()):
                    self._on_job_change(key)

    def apply_pod(self, document: Document, *, gone: bool) -> None:
        metadata = document["metadata"]
        name = f"{metadata.get('namespace') or 'default'}/{metadata['name']}"
        counts = not gone and not leaving(document) and not is_gated(document)
        after = _read(pod_of, document, f"pod {name}") if counts else None
        if after is not None and not after.occupies_resources:
            after = None
        if self.pods.get(name) != after:
            _store(self.pods, name, after)
            self.changes.pods.add(name)
        _store(self.limits, name, pod_limits(document) if after is not None and after.machine else None)
        if is_of_job(document):
            key = job_key(document)
            pods = self._job_pods.setdefault(key, {})
            _store(pods, str(metadata["name"]), None if gone else document)
            if gone or not on_its_way(document):
                self._pod_troubles.pop(uid_of(document), None)
            if not pods:
                del self._job_pods[key]
            self._on_job_change(key)

    def explain_pod(self, document: Document, words: str) -> None:
        """Takes what a machine reports of a pod of a job that it does not start."""
        key, uid = job_key(document), uid_of(document)
        there = self._job_pods.get(key, {}).get(str(document["metadata"]["name"]))
        if there is None or uid_of(there) != uid or not on_its_way(there):
            return
        if self._pod_troubles.get(uid) != words:
            self._pod_troubles[uid] = words
            self._on_job_change(key)

    def apply_training_job(self, document: Document, *, gone: bool) -> None:
        problems: tuple[FieldProblem, ...] = ()
        try:
            job = parse_training_job(document)
        except InvalidTrainingJob as error:
            job, problems = training_job_head(document), error.problems
        managed = ManagedJob(job=job, document=document, problems=problems)
        before = self.jobs.get(managed.id)
        ids = self._ids_by_key.setdefault(job.key, set())
        if gone:
            self.jobs.pop(managed.id, None)
            ids.discard(managed.id)
        else:
            self.jobs[managed.id] = managed
            ids.add(managed.id)
            if before is not None and _is_same_but_status(before, managed):
                # Written by a controller.
                return
        if not ids:
            del self._ids_by_key[job.key]
        self._on_job_change(job.key)

    def apply_record(self, document: Document, *, gone: bool) -> None:
        key = job_key(document)
        if gone:
            self.records.pop(key, None)
            self._on_job_change(key)
            return
        before = self.records.get(key)
        after = CachedRecord(document=document, record=JobRecord.of(document.get("data")))
        self.records[key] = after
        if after.differs(before):
            self._on_job_change(key)

    def apply_priority_class(self, document: Document, *, gone: bool) -> None:
        name, value = str(document["metadata"]["name"]), int(document.get("value") or 0)
        for key in self._ids_by_key:
            self._on_job_change(key)
        _store(self.priorities, name, None if gone else value)
        if document.get("globalDefault"):
            self.default_priority = 0 if gone else value

    def take_changes(self) -> PlannerChanges:
        """Returns what has changed since the last call."""
        changes, self.changes = self.changes, PlannerChanges()
        return changes


def job_id_of(job: TrainingJob) -> str:
    return f"{job.api_version.partition('/')[0]}/{job.key}"


def job_key(document: Document) -> str:
    metadata = document["metadata"]
    return f"{metadata.get('namespace') or 'default'}/{(metadata.get('labels') or {}).get(JOB_LABEL, '')}"


def _reported(text: str) -> object:
    """Returns the status that a master reports, without the parts that change with every batch."""
    try:
        status = json.loads(text or "{}")
        nodes = [[node.get(key) for key in _OF_NODES] for node in status.get("nodes") or ()]
        return [status.get(key) for key in _OF_STATUS], nodes
    except (ValueError, AttributeError):
        return text


def is_gated(pod: Document) -> bool:
    """Whether the pod has scheduling gates: the scheduler ignores it, and it requests nothing yet."""
    return bool((pod.get("spec") or {}).get("schedulingGates"))


def pod_limits(pod: Document) -> dict[str, int]:
    """The limits of all containers, in the units of requests."""
    spec = pod.get("spec") or {}
    capped = [
        {**container, "resources": {"requests": (container.get("resources") or {}).get("limits") or {}}}
        for container in spec.get("containers") or ()
    ]
    read = _read(pod_of, {**pod, "spec": {"containers": capped}}, f"pod {pod['metadata']['name']}")
    return dict(read.requests) if read is not None else {}


def total_of(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total


def is_master(pod: Document) -> bool:
    return is_of_job(pod) and _role(pod) == MASTER_ROLE


def _role(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ROLE_LABEL, ""))


def _is_same_but_status(one: ManagedJob, other: ManagedJob) -> bool:
    def rest(managed: ManagedJob) -> TrainingJob:
        return replace(managed.job, status={}, resource_version="")

    return one.problems == other.problems and rest(one) == rest(other)


def _is_usable(machine: Machine) -> tuple[bool, bool]:
    return machine.is_ready, machine.takes_pods


def _read(read: Callable[[Document], _Read], document: Document, what: str) -> _Read | None:
    try:
        return read(document)
    except (UserError, SchedulingInputError, TypeError, ValueError) as error:
        log.warning("Skipping %s: %s", what, error)
        return None


_Key = TypeVar("_Key")


def _store(items: dict[_Key, _Read], key: _Key, value: _Read | None) -> None:
    if value is None:
        items.pop(key, None)
    else:
        items[key] = value
