"""Submits a job to a cluster: creates its objects; its master runs on its own from then on.

The job record comes first because it owns the rest: whatever is interrupted here, `elasticdl jobs delete` removes all
of it. What is left of a deleted job of the same name is waited for.

Failure modes
    The name is in use, or an object of that name belongs to no job: `UserError`. A failure or an interruption before
    all objects are there: the job record is deleted again, and the rest with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.observer import JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections import reserved
from elasticdl.jobs.sections.pod_fields import parse_pod_fields
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, owners_of, uid_of
from elasticdl.platforms.kubernetes.credentials import Credentials
from elasticdl.platforms.kubernetes.kubeconfig import current_namespace
from elasticdl.platforms.kubernetes.manifests import manifests, marked, owned, redacted
from elasticdl.platforms.kubernetes.naming import JOB_LABEL
from elasticdl.platforms.kubernetes.pods.status import grace_seconds, leaving

# The kinds of objects that a job consists of, besides its record.
OWNED_KINDS = ("Pod", "Service", "Secret", "NetworkPolicy")


def manifests_text(spec: JobSpec, environment: Mapping[str, str] | None = None) -> str:
    """Returns everything that `submit` would create, as a file for `kubectl apply -f`, with new secrets each time."""
    documents = manifests(complete_spec(spec, environment), Credentials.make(spec.job_name))
    return as_text(documents)


def preview_text(spec: JobSpec, environment: Mapping[str, str] | None = None) -> str:
    """The same to be looked at: without the token, the key, the certificates and the values of variables of the job."""
    documents = manifests(complete_spec(spec, environment), Credentials.make(spec.job_name))
    return as_text(redacted(each) for each in documents)


def as_text(documents: Iterable[Document]) -> str:
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def complete_spec(spec: JobSpec, environment: Mapping[str, str] | None = None) -> JobSpec:
    """Returns the job with what it takes from the place of its submission: variables, a file, a namespace."""
    nodes, cluster = spec.nodes, spec.cluster
    if nodes.populate_env_names:
        variables = os.environ if environment is None else environment
        found = {
            name: value
            for name, value in sorted(variables.items())
            if re.fullmatch(nodes.populate_env_names, name) and not name.startswith(reserved.OF_THE_CLUSTER)
        }
        if taken := sorted(
            found.keys() & reserved.variables(spec.model, num_ps=nodes.num_ps) - nodes.envs.keys()
        ):
            raise UserError(
                f"--populate_env_names: {' and '.join(taken)}: set by the master and cannot be given.",
                hint="Choose a pattern without such names, or unset them here.",
            )
        # Explicit values take precedence.
        found = {name: value for name, value in found.items() if name not in nodes.secret_envs}
        nodes = dataclasses.replace(nodes, envs={**found, **nodes.envs}, populate_env_names="")
    if not cluster.namespace:
        cluster = dataclasses.replace(cluster, namespace=current_namespace())
    if cluster.cluster_spec:
        text = _pod_fields(Path(cluster.cluster_spec))
        cluster = dataclasses.replace(cluster, cluster_spec="", cluster_spec_json=text)
    whole = dataclasses.replace(spec, nodes=nodes, cluster=cluster)
    # The content of the file needs validation too.
    return from_yaml(to_yaml(whole)) if spec.cluster.cluster_spec else whole


def _pod_fields(path: Path) -> str:
    """Returns the file of --cluster_spec, validated, as the value of --cluster_spec_json."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--cluster_spec: {path} cannot be read: {error.strerror}.") from None
    try:
        return json.dumps(parse_pod_fields(text))
    except (BadValue, UnicodeDecodeError) as problem:
        raise UserError(f"--cluster_spec: {path}: {problem}") from None


async def create_job(
    cluster: Cluster,
    spec: JobSpec,
    *,
    observer: JobObserver,
    timing: Timing,
    record_owner: Document | None = None,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Creates all objects of the job, or none. `spec`: from `complete_spec`. `record_owner`: what the job record, and
    with it the job, is deleted with (a TrainingJob). `annotations`: of the job record.
    """
    record, *others = manifests(spec, Credentials.make(spec.job_name))
    if record_owner is not None:
        record = owned(record, record_owner)
    try:
        owner = await cluster.create(marked(record, secrets.token_hex(8), annotations))
    except ClusterError as error:
        if error.reason == "AlreadyExists":
            raise UserError(
                f"The job name {spec.job_name} is in use in namespace {cluster.namespace}.",
                hint="Choose another --job_name, take its place with --replace, or remove that job: "
                f"`elasticdl jobs delete {spec.job_name} --namespace={cluster.namespace}`.",
            ) from None
        raise
    try:
        for document in others:
            made = owned(document, {**owner, "kind": "ConfigMap"})
            await create_owned(cluster, made, observer=observer, timing=timing)
    except BaseException:
        # Also when cancelled: half a job is no job.
        await cluster.delete("ConfigMap", record["metadata"]["name"], uid=uid_of(owner))
        raise


async def create_missing(
    cluster: Cluster, record: Document, spec: JobSpec, *, observer: JobObserver, timing: Timing
) -> None:
    """Creates what is missing of the objects that a job record owns, the pod of the master last."""
    _, *others = manifests(spec, Credentials.make(spec.job_name))
    for document in others:
        made = owned(document, {**record, "kind": "ConfigMap"})
        await create_owned(cluster, made, observer=observer, timing=timing)


async def create_owned(
    cluster: Cluster, document: Document, *, observer: JobObserver, timing: Timing
) -> None:
    """Creates an object with its owner; waits for one of a deleted job of the same name to disappear."""
    kind, name = document["kind"], document["metadata"]["name"]
    begun, longest_grace, noted = time.monotonic(), 0.0, False
    while True:
        try:
            await cluster.create(document)
            return
        except ClusterError as error:
            if error.reason != "AlreadyExists":
                raise
        there = await cluster.get(kind, name)
        if there is not None:
            if not leaving(there) and owners_of(there) == owners_of(document):
                # The job's own: another user has resumed the job as soon as its record was there.
                return
            if not leaving(there) and not owners_of(there):
                raise _foreign_object(cluster, document, there)
            longest_grace = max(longest_grace, grace_seconds(there))
        if time.monotonic() > begun + longest_grace + timing.leftover_timeout_seconds:
            raise UserError(
                f"{kind} {name} of a job that had this name before does not go.",
                hint=f"`kubectl describe {kind.lower()} {name} --namespace={cluster.namespace}` shows what holds it.",
            )
        if not noted:
            noted = True
            observer.note(f"Waiting for the end of {kind} {name}, of a job that had this name before.")
        await asyncio.sleep(timing.start_poll_seconds)


def _foreign_object(cluster: Cluster, document: Document, there: Document) -> UserError:
    kind, name = document["kind"], document["metadata"]["name"]
    job = document["metadata"]["labels"][JOB_LABEL]
    which, what = f"{kind.lower()} {name}", "it"
    if (there["metadata"].get("labels") or {}).get(JOB_LABEL) == job:
        # A record created with kubectl; its other objects usually exist too.
        which, what = (
            f"{','.join(OWNED_KINDS).lower()} --selector={JOB_LABEL}={job}",
            "all that is left of it",
        )
    return UserError(
        f"There is a {kind} {name} in namespace {cluster.namespace} already, of no job that is there.",
        hint=f"`kubectl delete {which} --namespace={cluster.namespace}` removes {what}.",
    )
