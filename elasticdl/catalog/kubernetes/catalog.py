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
from elasticdl.catalog.kubernetes.summary import summarize
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.kubernetes.training_job import create_training_job, find_training_job, has_size_range
from elasticdl.catalog.observer import SILENT, JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.api_resources import TRAINING_JOB
from elasticdl.platforms.kubernetes.client import Cluster
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
        cls, *, namespace: str = "", observer: JobObserver = SILENT, timing: Timing | None = None
    ) -> KubernetesCatalog:
        """Connects with kubectl's configuration, or inside a pod with its service account. Sends no request yet.

        `namespace`: without it, the namespace of kubectl's current context is used.
        """
        chosen = timing or timings.DEFAULT
        cluster = Cluster.connect(namespace=namespace, patience=chosen.request_timeout_seconds)
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
        records, masters = await asyncio.gather(
            self._cluster.list("ConfigMap", labels={"app": APP, ROLE_LABEL: JOB_ROLE}),
            self._cluster.list("Pod", labels={"app": APP, ROLE_LABEL: MASTER_ROLE}),
        )
        pods = {pod["metadata"]["name"]: pod for pod in masters.items}
        jobs = [(str(record["metadata"]["labels"][JOB_LABEL]), record) for record in records.items]
        return tuple(
            summarize(
                ObservedJob(name=name, document=record, master=pods.get(master_name(name))),
                location=f"namespace {self.namespace}",
            )
            for name, record in jobs
        )

    async def close(self) -> None:
        await self._cluster.close()
