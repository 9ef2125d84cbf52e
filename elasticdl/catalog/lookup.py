"""Finding a job by its name: on this machine, else on the cluster that is configured here, if one is."""

from __future__ import annotations

import os
from pathlib import Path

from elasticdl.catalog.job import UNKNOWN, JobView, Summary
from elasticdl.catalog.local.job import PLACE, LocalJob, local_jobs
from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.job_store import JobStore


def cluster_configured() -> bool:
    """As kubectl would look for it: asked without a connection, for most users have no cluster."""
    named = os.environ.get("KUBECONFIG")
    paths = [Path(part) for part in named.split(os.pathsep) if part] if named else [_default_config()]
    return any(path.is_file() for path in paths) or "KUBERNETES_SERVICE_HOST" in os.environ


def _default_config() -> Path:
    return Path.home() / ".kube" / "config"


def find_job(name: str, namespace: str | None) -> JobView:
    """Raises `UserError` if there is none, with the name that was perhaps meant."""
    here = [] if namespace else [job.name for job in local_jobs()]
    if name in here:
        return LocalJob(JobStore().get(name))
    if not namespace and not cluster_configured():
        return LocalJob(JobStore().get(name))
    from elasticdl.catalog.kubernetes.job import ClusterJobs
    from elasticdl.platforms.kubernetes.kubeconfig import current_namespace

    cluster = ClusterJobs(namespace or current_namespace())
    found = cluster.find(name)
    if found is not None:
        return found
    there = [job.job for job in cluster.summaries()]
    looked = f"in namespace {cluster.namespace} of the cluster"
    if not namespace:
        looked = f"on this machine or {looked}"
    raise UserError(
        f"There is no job {name!r} {looked}.{did_you_mean(name, [*here, *there])}",
        hint="`elasticdl jobs list` lists them.",
    )


def all_jobs(namespace: str | None) -> tuple[list[Summary], str]:
    """All jobs, the oldest first; and why those of the cluster are not among them, if it did not answer."""
    found = [] if namespace else [_summary(job) for job in local_jobs()]
    problem = ""
    if namespace or cluster_configured():
        from elasticdl.catalog.kubernetes.job import ClusterJobs
        from elasticdl.platforms.kubernetes.kubeconfig import current_namespace

        try:
            found += ClusterJobs(namespace or current_namespace()).summaries()
        except UserError as error:
            if namespace:
                raise
            problem = str(error)
    return sorted(found, key=lambda job: job.created), problem


def _summary(job: JobView) -> Summary:
    try:
        return job.summary()
    except UserError as error:
        # One that is damaged does not hide the others.
        return Summary(
            job=job.name,
            kind=UNKNOWN,
            state=UNKNOWN,
            created=0.0,
            ended=None,
            message=str(error),
            place=PLACE,
        )
