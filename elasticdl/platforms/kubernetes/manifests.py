"""The objects of a job on Kubernetes besides its pods: pure functions from a JobSpec to documents.

The job itself is a ConfigMap, the *job record* (`elasticdl.jobs.job_record`). It owns everything else, so deleting it
removes the job.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from elasticdl.jobs.job_record import new_record
from elasticdl.jobs.sections.env_secrets import secret_name
from elasticdl.jobs.spec import JobSpec, without_env_values
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.kubernetes.credentials import Credentials
from elasticdl.platforms.kubernetes.job_account import job_account
from elasticdl.platforms.kubernetes.network_policies import network_policies
from elasticdl.platforms.kubernetes.pods.manifest import master_pod, owner_references
from elasticdl.platforms.platform import MASTER_ROLE

Document = dict[str, Any]

# An annotation: when the master last wrote its status, in seconds by the clock of the API server. Readers compare it
# with the same clock; the clocks of machines differ.
WRITTEN_AT = "elasticdl-written-at"
# A master writes its status at least as often, whether it has changed or not.
SIGN_OF_LIFE_SECONDS = 120.0

JOB_ROLE = naming.JOB_ROLE
# An annotation of a Secret in a preview: the keys whose values are not shown.
_REDACTED = "elasticdl-redacted"
# An annotation of the record.
_SUBMISSION = "elasticdl-submission"


def manifests(spec: JobSpec, credentials: Credentials) -> list[Document]:
    """Everything that is submitted, in the order in which it must be. Its owner is only known then (`owned`).

    Values of `--envs` are in a Secret alone.
    """
    hidden = without_env_values(spec)
    return [
        job_object(hidden),
        secret(spec, credentials),
        *([env_secret(spec)] if spec.nodes.envs else []),
        *network_policies(spec),
        *job_account(spec),
        master_service(spec),
        master_pod(hidden),
    ]


def marked(record: Document, mark: str, annotations: Mapping[str, str] | None = None) -> Document:
    """Returns the record with a mark that distinguishes it from a simultaneous submission of the same job."""
    every = {**(annotations or {}), _SUBMISSION: mark}
    return {**record, "metadata": {**record["metadata"], "annotations": every}}


def owned(document: Document, owner: Document) -> Document:
    """The same document, of an object that goes when its owner does. `owner`: as the cluster has it, with its uid."""
    return {**document, "metadata": {**document["metadata"], "ownerReferences": owner_references(owner)}}


def job_object(spec: JobSpec) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(spec, naming.record_name(spec.job_name), JOB_ROLE),
        "data": new_record(spec),
    }


def secret(spec: JobSpec, credentials: Credentials) -> Document:
    return _secret(spec, naming.record_name(spec.job_name), credentials.files())


def env_secret(spec: JobSpec) -> Document:
    """The values of `--envs`, by the names of the variables."""
    return _secret(spec, secret_name(spec.job_name), spec.nodes.envs)


def redacted(document: Document) -> Document:
    """Returns a document to be shown. A Secret has no values; its annotation names them.

    Pods that were made from such a Secret would not start: they say which key is missing.
    """
    if document["kind"] != "Secret":
        return document
    said = {_REDACTED: f"{', '.join(document['data'])} (written by --yaml=FILE)"}
    return {**document, "metadata": {**document["metadata"], "annotations": said}, "data": {}}


def master_service(spec: JobSpec) -> Document:
    # Service meshes go by names: they would take one that is called grpc for a port without encryption, and cut it off.
    ports = [_port("tls-grpc", naming.master_port(spec), to=naming.MASTER_PORT)]
    if serves_public_client(spec):
        ports.append(_port("shards", naming.shards_port(spec), to=naming.SHARDS_PORT))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(spec, naming.master_service_name(spec.job_name), MASTER_ROLE),
        "spec": {
            "selector": {naming.JOB_LABEL: spec.job_name, naming.ROLE_LABEL: MASTER_ROLE},
            "ports": ports,
            "publishNotReadyAddresses": True,
        },
    }


def place_service(
    spec: JobSpec, role: str, place: int, *, index: int, owner: Document | None = None
) -> Document:
    """The lasting address of a place. `index`: the number of the node that has the place now.

    Not by the place alone: a pod that is on its way out, or lost with its machine, would get connections too.
    """
    metadata = _metadata(spec, naming.place_service_name(spec, role, place), role)
    metadata["labels"][naming.PLACE_LABEL] = f"{role}-{place}"
    if references := owner_references(owner):
        metadata["ownerReferences"] = references
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": place_selector(spec, role, index),
            "ports": [_port("node", naming.NODE_PORT, to=naming.NODE_PORT)],
            "publishNotReadyAddresses": True,
        },
    }


def place_selector(spec: JobSpec, role: str, index: int) -> dict[str, str]:
    return {naming.JOB_LABEL: spec.job_name, naming.ROLE_LABEL: role, naming.INDEX_LABEL: str(index)}


def serves_public_client(spec: JobSpec) -> bool:
    return spec.program == "command" and spec.model.public_client


def _metadata(spec: JobSpec, name: str, role: str) -> Document:
    return {
        "name": name,
        "namespace": spec.cluster.namespace,
        "labels": naming.labels(spec.job_name, role),
    }


def _secret(spec: JobSpec, name: str, texts: Mapping[str, str]) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(spec, name, JOB_ROLE),
        "type": "Opaque",
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()},
    }


def _port(name: str, number: int, *, to: int) -> Document:
    return {"name": name, "port": number, "targetPort": to, "protocol": "TCP"}
