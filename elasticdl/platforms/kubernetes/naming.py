"""The names of a job's objects on Kubernetes, and the labels that select them."""

from __future__ import annotations

import hashlib

from elasticdl.jobs.spec import JobSpec

APP = "elasticdl"
JOB_LABEL = "elasticdl-job-name"
ROLE_LABEL = "elasticdl-replica-type"
INDEX_LABEL = "elasticdl-replica-index"
PLACE_LABEL = "elasticdl-place"
# In the place of a role: of the objects that are the job's as a whole.
JOB_ROLE = "job"

# All calls of the job's own nodes, with token and TLS.
MASTER_PORT = 50001
# The public client of `elasticai_api`: data shards and nothing else.
SHARDS_PORT = 50002
# The port of all other servers.
NODE_PORT = 50010

# The names of services become names in a DNS.
_LONGEST_SERVICE_NAME = 63


def master_port(spec: JobSpec) -> int:
    """Returns the port of the master's service. The port of its pod is the same for all jobs."""
    return spec.cluster.master_port or MASTER_PORT


def shards_port(spec: JobSpec) -> int:
    return SHARDS_PORT if master_port(spec) != SHARDS_PORT else MASTER_PORT


def record_name(job: str) -> str:
    """Returns the name of a job's record, and of its Secret and its first NetworkPolicy."""
    return f"elasticdl-{job}"


def master_name(job: str) -> str:
    """Returns the name of the master's pod."""
    return f"elasticdl-{job}-master"


def master_service_name(job: str) -> str:
    return _short(master_name(job))


def pod_name(spec: JobSpec, node: str) -> str:
    """Returns the name of the pod of a node such as "worker-3"."""
    if spec.program == "command":
        return f"{spec.job_name}-edljob-{node}"
    return f"elasticdl-{spec.job_name}-{node}"


def place_service_name(spec: JobSpec, role: str, place: int) -> str:
    """Returns the name of the Service of a place, which has the same address for every pod there."""
    return _short(pod_name(spec, f"{role}-{place}"))


def labels(job: str, role: str) -> dict[str, str]:
    return {"app": APP, JOB_LABEL: job, ROLE_LABEL: role}


def node_labels(job: str, node: str, place: int) -> dict[str, str]:
    role, _, number = node.rpartition("-")
    return {**labels(job, role), INDEX_LABEL: number, PLACE_LABEL: f"{role}-{place}"}


def node_of(pod: dict[str, object]) -> str:
    """The node that a pod is, "" if it is none."""
    given = _labels_of(pod)
    if ROLE_LABEL not in given or INDEX_LABEL not in given:
        return ""
    return f"{given[ROLE_LABEL]}-{given[INDEX_LABEL]}"


def place_of(pod: dict[str, object]) -> int | None:
    """Returns the place of its role that a pod was made for."""
    number = _labels_of(pod).get(PLACE_LABEL, "").rpartition("-")[2]
    return int(number) if number.isdigit() else None


def _labels_of(pod: dict[str, object]) -> dict[str, str]:
    metadata = pod.get("metadata")
    return (metadata.get("labels") if isinstance(metadata, dict) else None) or {}


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def everywhere(pod_ip: str) -> str:
    """The host that stands for all addresses of a pod, by one of them: there are clusters with IPv6 alone."""
    return "::" if ":" in pod_ip else "0.0.0.0"


def _short(name: str) -> str:
    if len(name) <= _LONGEST_SERVICE_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_SERVICE_NAME - 9].rstrip('-')}-{digest}"
