"""Jobs whose size the cluster chooses: those with a range of sizes, on a cluster that has TrainingJobs.

Such a job is submitted as a TrainingJob. The controller makes its job record from it, which the TrainingJob owns: what
would change the record of such a job changes the TrainingJob instead, since the controller would undo it.

Failure modes
    No controller runs, or the job has to wait: there is no record. The conditions of the TrainingJob say why.
"""

from __future__ import annotations

from typing import Any

import yaml

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.job_document import job_document
from elasticdl.jobs.training_job.parsing import InvalidTrainingJob, parse_training_job
from elasticdl.jobs.training_job.resource import API_VERSIONS, KIND
from elasticdl.platforms.kubernetes.api_resources import PADDLE_TRAINING_JOB, TRAINING_JOB, Resource
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, owners_of, uid_of

_RESOURCES = (TRAINING_JOB, PADDLE_TRAINING_JOB)


def has_size_range(spec: JobSpec) -> bool:
    """The job may be scaled while it runs, up to a maximum."""
    nodes = spec.nodes
    ranges = [nodes.range_of("worker"), *([nodes.range_of("ps")] if nodes.num_ps else [])]
    return spec.kind == "train" and any(high is not None and high > max(low, 1) for low, high in ranges)


def training_job_document(spec: JobSpec) -> Document:
    """Returns the TrainingJob of a job. `spec`: from `complete_spec`. Raises `UserError` for what it cannot say."""
    document: dict[str, Any] = {
        "apiVersion": API_VERSIONS[0],
        "kind": KIND,
        "metadata": {"name": spec.job_name, "namespace": spec.cluster.namespace},
        "spec": {"job": job_document(spec)},
    }
    try:
        parse_training_job(document)
    except InvalidTrainingJob as error:
        sentences = " ".join(_flag(each.path, str(each)) for each in error.problems)
        raise UserError(f"A job between two sizes: {sentences}") from None
    return document


def training_job_text(spec: JobSpec) -> str:
    """Returns the TrainingJob as a file for `kubectl apply -f`."""
    return yaml.safe_dump(training_job_document(spec), sort_keys=False)


async def create_training_job(cluster: Cluster, spec: JobSpec) -> None:
    try:
        await cluster.create(training_job_document(spec), resource=TRAINING_JOB)
    except ClusterError as error:
        if error.reason != "AlreadyExists":
            raise
        raise UserError(
            f"The job name {spec.job_name} is in use in namespace {cluster.namespace}.",
            hint="Choose another --job_name, take its place with --replace, or remove that job: "
            f"`kubectl delete tj {spec.job_name} --namespace={cluster.namespace}`.",
        ) from None


async def find_training_job(
    cluster: Cluster, name: str, *, record: Document | None
) -> tuple[Resource, Document] | None:
    """Returns the TrainingJob that owns the record, or, without a record, the one of this name."""
    owners = None if record is None else owners_of(record)
    for resource in _RESOURCES:
        document = await cluster.get(resource, name)
        if document is not None and (owners is None or uid_of(document) in owners):
            return resource, document
    return None


def is_managed(record: Document) -> bool:
    """A TrainingJob owns this job record, so a controller looks after the job."""
    references = record["metadata"].get("ownerReferences") or ()
    return any(each.get("kind") == KIND for each in references)


async def pin_size(cluster: Cluster, resource: Resource, document: Document, count: int) -> None:
    """Pins the number of workers, as `kubectl scale` does. Raises `UserError` outside of the range."""
    trainer = parse_training_job({**document, "kind": KIND}).spec.trainer
    if not trainer.min_instance <= count <= trainer.max_instance:
        raise UserError(
            f"--num_workers={count} is not between {trainer.min_instance} and {trainer.max_instance}, the range of "
            "this job."
        )
    changes = {"spec": {"trainer": {"replicas": count}}}
    await cluster.patch(resource, str(document["metadata"]["name"]), changes)


def is_waiting(document: Document) -> bool:
    """A controller has decided that this TrainingJob cannot start now."""
    status = document.get("status") or {}
    states = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    return "False" in (states.get("Valid"), states.get("Admitted")) or states.get("Suspended") == "True"


def waiting_reason(document: Document) -> str:
    """Returns why a TrainingJob has no job record yet."""
    status = document.get("status") or {}
    if not status:
        return "no controller has seen it yet"
    return str(status.get("message") or f"it is {status.get('phase')}")


def _flag(path: str, sentence: str) -> str:
    """The sentence about a field of spec.job as one about its flag."""
    if not path.startswith("spec.job."):
        return sentence
    return sentence.replace(path, f"--{path.rpartition('.')[2]}", 1)
