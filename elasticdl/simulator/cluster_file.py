"""Reads a file that describes a cluster and its jobs, and a file that describes one job to ask about.

Two forms are accepted: our own YAML (docs/simulator.md), and what `kubectl get nodes,pods -A -o json`
prints. Errors name the file and the line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticdl.catalog.kubernetes.cluster_state import state_from_documents
from elasticdl.errors import UserError
from elasticdl.scheduling.cluster import ClusterState, Machine, Pod, Quota
from elasticdl.scheduling.demand import JobDemand, Observation, Progress, RoleGroup
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.requirements import PODS, Taint, TaintEffect
from elasticdl.simulator.inputs import entry, items, load_yaml, quantity
from elasticdl.simulator.traces import MOST_COUNT, Row
from elasticdl.simulator.workload import CPU, GPU, MEMORY, parse_machines

_TOP = ("nodes", "machines", "jobs", "pods", "quotas")
_MACHINE = ("name", "count", "cpu", "memory", "gpu", "pods", "labels", "taints", "ready", "cordoned")
_JOB = (
    "name", "namespace", "priority", "weight", "age", "groups", "running", "measured", "work_total", "work_done",
    "resize_cost", "largest_size",
)  # fmt: skip
_GROUP = ("role", "count", "min", "max", "cpu", "memory", "gpu", "node_selector")
_MEASURED = ("machines", "workers", "per_second")
_POD = ("name", "namespace", "machine", "count", "cpu", "memory", "gpu", "priority")
_QUOTA = ("namespace", "guaranteed", "limit")
_UNITS = {"cpu": (CPU, 1000), "memory": (MEMORY, 1), "gpu": (GPU, 1)}


def read_cluster(path: Path) -> ClusterState:
    """Returns the state of the cluster that a file describes, at second zero."""
    document = _load(path)
    if isinstance(document, Mapping) and document.get("kind") in ("List", "NodeList", "PodList"):
        kind = str(document["kind"]).removesuffix("List")
        listed = document.get("items") or []
        if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
            raise UserError(f"{path}: items must be a list of objects, as kubectl prints it.")
        documents = [{"kind": kind, **item} if kind else item for item in listed]
        state = state_from_documents(documents)
        if not state.machines:
            raise UserError(f"{path} has no nodes.", hint="kubectl get nodes,pods -A -o json lists both.")
        return state
    return _read_own(path, document)


def read_job(path: Path) -> JobDemand:
    """Returns the job of a what-if file: the fields of one entry under `jobs`."""
    document = _load(path)
    if isinstance(document, Mapping) and "jobs" in document:
        jobs = items(path, document, "jobs")
        if len(jobs) != 1:
            raise UserError(f"{path} describes {len(jobs)} jobs; one is asked about at a time.")
        document = jobs[0]
    try:
        return _job(path, document)
    except SchedulingInputError as error:
        raise UserError(f"{path}: {error}.") from None


def _load(path: Path) -> Any:
    if path.suffix == ".json":
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}.") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not valid JSON: {error}") from None
    return load_yaml(path)


def _read_own(path: Path, document: Any) -> ClusterState:
    top = entry(path, document, _TOP, what="a cluster")
    machines: list[Machine] = list(parse_machines(top.text("nodes"))) if top.has("nodes") else []
    try:
        for values in items(path, document, "machines"):
            machines += _machines(path, values)
        if not machines:
            raise UserError(
                f"{path} describes no machines.", hint="Add nodes: 10x12cpu64Gi, or a list of machines."
            )
        names = {machine.name for machine in machines}
        jobs = [_job(path, values) for values in items(path, document, "jobs")]
        pods: list[Pod] = []
        for values, job in zip(items(path, document, "jobs"), jobs, strict=True):
            pods += _job_pods(path, values, job, names)
        for values in items(path, document, "pods"):
            pods += _pods(path, values, names)
        quotas = tuple(_quota(path, values) for values in items(path, document, "quotas"))
        return ClusterState(
            now_seconds=0.0, machines=tuple(machines), pods=tuple(pods), jobs=tuple(jobs), quotas=quotas
        )
    except SchedulingInputError as error:
        raise UserError(f"{path}: {error}.") from None


def _resources(row: Row) -> dict[str, int]:
    found = {}
    for key, (name, scale) in _UNITS.items():
        if row.has(key):
            found[name] = quantity(row.text(key), scale=scale, where=f"{row.where}: {key}")
    return {key: value for key, value in found.items() if value}


def _machines(path: Path, values: Any) -> list[Machine]:
    row = entry(path, values, _MACHINE, what="a machine")
    count = row.count("count") if row.has("count") else 1
    name = row.text("name")
    taints = []
    for text in _list(values, "taints", row.where):
        key, _, effect = str(text).partition(":")
        key, _, value = key.partition("=")
        try:
            if not isinstance(text, str) or not key:
                raise ValueError(text)
            taints.append(Taint(key=key, value=value, effect=TaintEffect(effect or "NoSchedule")))
        except ValueError:
            raise UserError(
                f"{row.where}: {text!r} is no taint.", hint="Write key=value:NoSchedule."
            ) from None
    allocatable = _resources(row)
    if row.has("pods"):
        allocatable[PODS] = row.count("pods")
    return [
        Machine(
            name=name if count == 1 else f"{name}-{number}",
            allocatable=allocatable,
            labels=_texts(values.get("labels"), row.where),
            taints=tuple(taints),
            is_ready=_switch(values, "ready", row.where, default=True),
            is_cordoned=_switch(values, "cordoned", row.where, default=False),
        )
        for number in range(count)
    ]


def _list(values: Mapping[str, Any], key: str, where: str) -> list[Any]:
    found = values.get(key)
    if found is not None and not isinstance(found, list):
        raise UserError(f"{where}: {key} must be a list, not {found!r}.")
    return found or []


def _switch(values: Mapping[str, Any], key: str, where: str, *, default: bool) -> bool:
    found = values.get(key)
    if found is not None and not isinstance(found, bool):
        raise UserError(f"{where}: {key} must be true or false, not {found!r}.")
    return default if found is None else found


def _running(values: Mapping[str, Any], where: str) -> dict[str, dict[str, int]]:
    """Counts by role and machine."""
    found = values.get("running")
    if found is not None and not isinstance(found, Mapping):
        raise UserError(f"{where}: running maps roles to machines and counts; it is {found!r}.")
    return {str(role): _counts(held, where) for role, held in (found or {}).items() if role != "__line__"}


def _texts(values: Any, where: str) -> dict[str, str]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: expected a mapping, not {values!r}.")
    return {str(key): str(value) for key, value in values.items() if key != "__line__"}


def _job(path: Path, values: Any) -> JobDemand:
    row = entry(path, values, _JOB, what="a job")
    groups = values.get("groups")
    if not isinstance(groups, list) or not groups:
        raise UserError(
            f"{row.where}: job {row.text('name')} has no groups.", hint="Add groups: with role, min and max."
        )
    progress = Progress()
    if row.has("work_total"):
        done = row.number("work_done", least=0) if row.has("work_done") else 0.0
        progress = Progress(work_done=done, work_total=max(row.number("work_total", above=0), done))
    age = row.number("age", least=0) if row.has("age") else 0.0
    return JobDemand(
        name=row.text("name"),
        namespace=row.text("namespace") if row.has("namespace") else "default",
        priority=row.whole_number("priority") if row.has("priority") else 0,
        weight=row.number("weight", above=0) if row.has("weight") else 1.0,
        submitted_at_seconds=-age,
        started_at_seconds=-age if values.get("running") else None,
        groups=tuple(_group(path, group) for group in groups),
        observations=tuple(_measured(path, one) for one in _list(values, "measured", row.where)),
        progress=progress,
        resize_cost_seconds=row.number("resize_cost", least=0) if row.has("resize_cost") else 30.0,
        largest_run_size=_largest_size(row, values),
        last_resize_at_seconds=-age if values.get("running") else None,
    )


def _largest_size(row: Row, values: Mapping[str, Any]) -> int:
    sizes = [sum(machines.values()) for machines in _running(values, row.where).values()]
    declared = row.count("largest_size", least=0) if row.has("largest_size") else 0
    return max([declared, *sizes])


def _counts(machines: Any, where: str) -> dict[str, int]:
    if not isinstance(machines, Mapping):
        raise UserError(f"{where}: running maps roles to machines and counts, not to {machines!r}.")
    counts = {str(name): count for name, count in machines.items() if name != "__line__"}
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_COUNT:
            raise UserError(f"{where}: {count!r} on {name} is no count from 1 to {MOST_COUNT:,}.")
    return counts


def _group(path: Path, values: Any) -> RoleGroup:
    row = entry(path, values, _GROUP, what="a role group")
    count = row.count("count", least=0) if row.has("count") else None
    minimum = row.count("min", least=0) if row.has("min") else count if count is not None else 1
    maximum = row.count("max", least=0) if row.has("max") else count if count is not None else minimum
    if minimum > maximum:
        raise UserError(f"{row.where}: min {minimum} exceeds max {maximum}.")
    return RoleGroup(
        role=row.text("role"),
        minimum=minimum,
        maximum=maximum,
        requests=_resources(row),
        node_selector=_texts(values.get("node_selector"), row.where),
    )


def _measured(path: Path, values: Any) -> Observation:
    row = entry(path, values, _MEASURED, what="a measurement")
    return Observation.from_throughput(
        machines=row.count("machines") if row.has("machines") else 1,
        replicas=row.count("workers"),
        samples_per_second=row.number("per_second", above=0),
    )


def _job_pods(path: Path, values: Mapping[str, Any], job: JobDemand, machines: set[str]) -> list[Pod]:
    line = int(values.get("__line__", 1))
    where = f"{path}, line {line}"
    requests = {group.role: group.requests for group in job.groups}
    pods: list[Pod] = []
    for role, held in _running(values, where).items():
        if role not in requests:
            raise UserError(f"{where}: job {job.name} has no group {role}.")
        for machine, count in held.items():
            if machine not in machines:
                raise UserError(f"{where}: there is no machine {machine}.")
            first = sum(pod.role == role for pod in pods)
            pods += [
                Pod(
                    name=f"{job.name}-{role}-{first + number}",
                    namespace=job.namespace,
                    requests=requests[role],
                    machine=machine,
                    priority=job.priority,
                    job=job.name,
                    role=role,
                )
                for number in range(count)
            ]
    return pods


def _pods(path: Path, values: Any, machines: set[str]) -> list[Pod]:
    row = entry(path, values, _POD, what="a pod")
    count = row.count("count") if row.has("count") else 1
    machine = row.text("machine") if row.has("machine") else None
    if machine is not None and machine not in machines:
        raise UserError(f"{row.where}: there is no machine {machine}.")
    name = row.text("name")
    return [
        Pod(
            name=name if count == 1 else f"{name}-{number}",
            namespace=row.text("namespace") if row.has("namespace") else "default",
            requests=_resources(row),
            machine=machine,
            priority=row.whole_number("priority") if row.has("priority") else 0,
        )
        for number in range(count)
    ]


def _quota(path: Path, values: Any) -> Quota:
    row = entry(path, values, _QUOTA, what="a quota")
    parts: dict[str, dict[str, int]] = {}
    for part in ("guaranteed", "limit"):
        inner = values.get(part)
        parts[part] = {} if inner is None else _resources(entry(path, inner, tuple(_UNITS), what=part))
    return Quota(namespace=row.text("namespace"), guaranteed=parts["guaranteed"], limit=parts["limit"])
