"""The jobs of one namespace of a cluster."""

from __future__ import annotations

import asyncio
import dataclasses

from elasticdl.catalog.catalog import Catalog
from elasticdl.catalog.job import JobSummary
from elasticdl.catalog.kubernetes import timing as timings
from elasticdl.catalog.kubernetes.job import KubernetesJob
from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.catalog.kubernetes.submission import complete_spec, create_job
from elasticdl.catalog.kubernetes.summary import summarize, summarize_waiting
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.kubernetes.training_job import (
    create_training_job,
    find_training_job,
    has_size_range,
    list_training_jobs,
)
from elasticdl.catalog.observer import SILENT, JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.api_resources import TRAINING_JOB
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.kubeconfig import find_access, with_token
from elasticdl.platforms.kubernetes.manifests import JOB_ROLE
from elasticdl.platforms.kubernetes.naming import APP, JOB_LABEL, ROLE_LABEL, master_name, record_name
from elasticdl.platforms.platform import MASTER_ROLE


class KubernetesCatalog(Catalog):
    """`cluster`: is closed with the catalog."""

    def __init__(
        self, cluster: Cluster, *, observer: JobObserver = SILENT, timing: Timing | None = None
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._timing = timing or timings.DEFAULT

    @classmethod
    def connect(
        cls,
        *,
        namespace: str = "",
        token: str = "",
        observer: JobObserver = SILENT,
        timing: Timing | None = None,
    ) -> KubernetesCatalog:
        """Connects with kubectl's configuration, or inside a pod with its service account. Sends no request yet.

        `namespace`: without it, the namespace of kubectl's current context is used. `token`: of the
        user as whom to act.
        """
        chosen = timing or timings.DEFAULT
        access = find_access(namespace=namespace)
        cluster = Cluster(
            with_token(access, token) if token else access, patience=chosen.request_timeout_seconds
        )
        return cls(cluster, observer=observer, timing=chosen)

    @property
    def namespace(self) -> str:
        return self._cluster.namespace

    @property
    def location(self) -> str:
        return f"namespace {self.namespace} of the cluster"

    async def submit(self, spec: JobSpec) -> KubernetesJob:
        """Takes variables and files that the spec names from the place of the submission (`complete_spec`). A job with
        a range of sizes becomes a TrainingJob where the cluster has these.
        """
        named = spec.cluster.namespace
        if named and named != self.namespace:
            raise UserError(
                f"Job {spec.job_name} is for namespace {named}, and this catalog is of namespace {self.namespace}.",
                hint=f"Connect a catalog to namespace {named}, or omit --namespace.",
            )
        here = dataclasses.replace(spec.cluster, namespace=self.namespace)
        spec = complete_spec(dataclasses.replace(spec, cluster=here))
        job = self.job(spec.job_name)
        how = "submitted"
        if has_size_range(spec) and await self._cluster.is_served(TRAINING_JOB):
            await create_training_job(self._cluster, spec, observer=self._observer, timing=self._timing)
            how = "submitted as a TrainingJob"
        else:
            await create_job(self._cluster, spec, observer=self._observer, timing=self._timing)
        self._observer.started(
            spec, f"{how} to namespace {self.namespace}; follow it with {job.logs_location} -f"
        )
        return job

    async def find(self, name: str) -> KubernetesJob | None:
        record = await self._cluster.get("ConfigMap", record_name(name))
        if record is None:
            waiting = await find_training_job(self._cluster, name, record=None)
            return None if waiting is None else self.job(name)
        if (record["metadata"].get("labels") or {}).get(ROLE_LABEL) != JOB_ROLE:
            return None
        return self.job(name)

    def job(self, name: str) -> KubernetesJob:
        """Returns the handle of a job without looking for it."""
        return KubernetesJob(self._cluster, name, observer=self._observer, timing=self._timing)

    async def list(self) -> tuple[JobSummary, ...]:
        """Two requests, however many jobs there are."""
        return await _summaries(self._cluster)

    async def list_everywhere(self) -> tuple[JobSummary, ...]:
        """Returns the jobs of all namespaces, with TrainingJobs that wait."""
        everywhere = self._cluster.all_namespaces()
        jobs, training_jobs = await asyncio.gather(_summaries(everywhere), list_training_jobs(everywhere))
        known = {(job.namespace, job.job) for job in jobs}
        waiting = (summarize_waiting(resource, document) for resource, document in training_jobs)
        return (*jobs, *(each for each in waiting if (each.namespace, each.job) not in known))

    async def close(self) -> None:
        await self._cluster.close()


async def _summaries(cluster: Cluster) -> tuple[JobSummary, ...]:
    """Of the jobs in the scope of the cluster."""
    records, masters = await asyncio.gather(
        cluster.list("ConfigMap", labels={"app": APP, ROLE_LABEL: JOB_ROLE}),
        cluster.list("Pod", labels={"app": APP, ROLE_LABEL: MASTER_ROLE}),
    )
    pods = {_place(pod): pod for pod in masters.items}
    found = []
    for record in records.items:
        name, (namespace, _) = str(record["metadata"]["labels"][JOB_LABEL]), _place(record)
        job = ObservedJob(name=name, document=record, master=pods.get((namespace, master_name(name))))
        found.append(summarize(job, location=f"namespace {namespace or cluster.namespace}"))
    return tuple(found)


def _place(document: Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata["name"])
