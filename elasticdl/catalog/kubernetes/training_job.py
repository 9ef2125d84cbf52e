"""Jobs whose size the cluster chooses: those with a range of sizes, on a cluster that has TrainingJobs.

Such a job is submitted as a TrainingJob. The controller makes its job record from it, which the TrainingJob owns: what
would change the record of such a job changes the TrainingJob instead, since the controller would undo it.

Failure modes
    No controller runs, or the job has to wait: there is no record. The conditions of the TrainingJob say why.
"""

from __future__ import annotations

from typing import Any

from elasticdl.catalog.kubernetes.submission import as_text, create_owned
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.observer import JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, without_env_values
from elasticdl.jobs.training_job.job_document import job_document
from elasticdl.jobs.training_job.parsing import InvalidTrainingJob, parse_training_job
from elasticdl.jobs.training_job.resource import API_VERSIONS, KIND
from elasticdl.platforms.kubernetes.api_resources import PADDLE_TRAINING_JOB, TRAINING_JOB, Resource
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, owners_of, uid_of
from elasticdl.platforms.kubernetes.manifests import env_secret, owned, redacted

_RESOURCES = (TRAINING_JOB, PADDLE_TRAINING_JOB)


def has_size_range(spec: JobSpec) -> bool:
    """The job may be scaled while it runs, up to a maximum."""
    nodes = spec.nodes
    ranges = [nodes.range_of("worker"), *([nodes.range_of("ps")] if nodes.num_ps else [])]
    return spec.kind == "train" and any(high is not None and high > max(low, 1) for low, high in ranges)


def training_job_document(spec: JobSpec) -> Document:
    """Returns the TrainingJob of a job, without the values of its `envs` (`env_secret`). `spec`: from
    `complete_spec`. Raises `UserError` for what it cannot say.
    """
    document: dict[str, Any] = {
        "apiVersion": API_VERSIONS[0],
        "kind": KIND,
        "metadata": {"name": spec.job_name, "namespace": spec.cluster.namespace},
        "spec": {"job": job_document(without_env_values(spec))},
    }
    try:
        parse_training_job(document)
    except InvalidTrainingJob as error:
        sentences = " ".join(_flag(each.path, str(each)) for each in error.problems)
        raise UserError(f"A job between two sizes: {sentences}") from None
    return document


def training_job_text(spec: JobSpec, *, is_preview: bool = False) -> str:
    """Returns the TrainingJob, and the Secret with the values of its variables if it has some, as a file for
    `kubectl apply -f`. A preview has no values.
    """
    documents = [training_job_document(spec), *([env_secret(spec)] if spec.nodes.envs else [])]
    return as_text(redacted(each) if is_preview else each for each in documents)


async def create_training_job(
    cluster: Cluster, spec: JobSpec, *, observer: JobObserver, timing: Timing
) -> None:
    """Creates the TrainingJob and the Secret that it owns, or neither."""
    try:
        created = await cluster.create(training_job_document(spec), resource=TRAINING_JOB)
    except ClusterError as error:
        if error.reason != "AlreadyExists":
            raise
        raise UserError(
            f"The job name {spec.job_name} is in use in namespace {cluster.namespace}.",
            hint="Choose another --job_name, take its place with --replace, or remove that job: "
            f"`kubectl delete tj {spec.job_name} --namespace={cluster.namespace}`.",
        ) from None
    if not spec.nodes.envs:
        return
    owner = {**created, "apiVersion": TRAINING_JOB.api_version, "kind": KIND}
    try:
        # Containers wait for it.
        await create_owned(cluster, owned(env_secret(spec), owner), observer=observer, timing=timing)
    except BaseException:
        # Also when cancelled: without its variables it cannot run.
        await cluster.delete(TRAINING_JOB, spec.job_name, uid=uid_of(created))
        raise


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
    return bool(owner_group(record))


def owner_group(record: Document) -> str:
    """Returns the API group of the TrainingJob that owns this job record; empty if none does."""
    references = record["metadata"].get("ownerReferences") or ()
    versions = (str(each.get("apiVersion") or "") for each in references if each.get("kind") == KIND)
    return next((version.partition("/")[0] for version in versions), "")


async def list_training_jobs(cluster: Cluster) -> list[tuple[Resource, Document]]:
    """Returns all TrainingJobs of the scope; none where the cluster does not have the resource."""
    found: list[tuple[Resource, Document]] = []
    for resource in _RESOURCES:
        if await cluster.is_served(resource):
            found += [(resource, each) for each in (await cluster.list(resource)).items]
    return found


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
