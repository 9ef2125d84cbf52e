"""Carries out the controller's actions: the only place that writes to the cluster.

Every write holds only for the object that was seen: desired states and statuses by its version, deletions by its uid.
A conflict means that the cache is behind; the rest of the job's actions is dropped, and the next step starts from what
exists then.

Failure modes
    A deposed leader finds a higher generation beside the desired state and writes nothing. A missing right is logged
    with the request that was refused, and retried with the next step. One job's failure stops no other job.
"""

from __future__ import annotations

import datetime
import logging
import secrets
from collections.abc import Callable, Iterable

from elasticdl.catalog.kubernetes import timing as timings
from elasticdl.catalog.kubernetes.submission import create_job, create_missing
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.observer import SILENT
from elasticdl.controller.reconcile.actions import (
    Action,
    DeletePod,
    DeleteTrainingJob,
    EmitEvent,
    StartJob,
    StartMaster,
    WriteDesired,
    WriteStatus,
)
from elasticdl.controller.reconcile.started_spec import started_annotations
from elasticdl.errors import UserError
from elasticdl.jobs.job_record import desired_entry
from elasticdl.jobs.training_job.resource import KIND, TrainingJob
from elasticdl.platforms.kubernetes.api_resources import PADDLE_TRAINING_JOB, TRAINING_JOB, Resource
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, owners_of
from elasticdl.platforms.kubernetes.naming import record_name

log = logging.getLogger("elasticdl.controller")

COMPONENT = "training-job-controller"
# An annotation of the job record: the generation of the leader that has written the desired state.
LEADER_GENERATION = "elasticdl-leader-generation"
_CONFLICT = 409
_LONGEST_MESSAGE = 1000


class StaleView(UserError):
    """The object has changed since it was seen."""


class Effects:
    """`generation`: of this leader; `is_leader`: asked before every action. `on_failure`: called with an action that
    the API server has refused or not answered, unless only the cache was behind.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        generation: Callable[[], int],
        is_leader: Callable[[], bool],
        on_failure: Callable[[Action, UserError], None] | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._cluster = cluster
        self._on_failure = on_failure
        self._generation = generation
        self._is_leader = is_leader
        self._timing = timing or timings.DEFAULT

    async def carry_out(self, actions: Iterable[Action]) -> bool:
        """Carries out the actions of one job in order. Returns false if not all of them could be."""
        for action in actions:
            if not self._is_leader():
                return False
            try:
                await self._carry_out(action)
            except StaleView as error:
                log.debug("Dropping %s of %s: %s", type(action).__name__, action.job.key, error.message)
                return False
            except UserError as error:
                if isinstance(error, ClusterError) and error.status == _CONFLICT:
                    log.debug("Dropping %s of %s: conflict", type(action).__name__, action.job.key)
                else:
                    log.warning("Cannot carry out %s of %s: %s", type(action).__name__, action.job.key, error)
                    if self._on_failure is not None:
                        self._on_failure(action, error)
                return False
        return True

    async def _carry_out(self, action: Action) -> None:
        cluster, job = self._cluster.in_namespace(action.job.namespace), action.job
        if isinstance(action, StartJob):
            await self._start_job(cluster, action)
        elif isinstance(action, StartMaster):
            log.info("Restarting the master of %s", job.key)
            await create_missing(cluster, action.record, action.spec, observer=SILENT, timing=self._timing)
        elif isinstance(action, DeletePod):
            log.info("Deleting pod %s/%s: %s", job.namespace, action.name, action.reason)
            grace = 0 if action.is_forced else None
            await cluster.delete("Pod", action.name, uid=action.uid, grace_seconds=grace)
        elif isinstance(action, WriteDesired):
            await self._write_desired(cluster, action)
        elif isinstance(action, WriteStatus):
            await self._write_status(cluster, action)
        elif isinstance(action, EmitEvent):
            log.info("Event %s of %s: %s", action.reason, job.key, action.message)
            await cluster.create(event_document(action, moment=datetime.datetime.now(datetime.timezone.utc)))
        elif isinstance(action, DeleteTrainingJob):
            log.info("Deleting %s: its time to live after its end is over", job.key)
            await cluster.delete(resource_of_job(job), job.name, uid=job.uid)

    async def _start_job(self, cluster: Cluster, action: StartJob) -> None:
        job = action.job
        there = await cluster.get("ConfigMap", record_name(job.name))
        if there is not None:
            mine = job.uid in owners_of(there)
            raise StaleView(f"its record is there already{'' if mine else ', and belongs to another job'}.")
        log.info("Starting %s with %d workers", job.key, action.spec.nodes.num_workers)
        await create_job(
            cluster,
            action.spec,
            observer=SILENT,
            timing=self._timing,
            record_owner=owner_document(job),
            annotations=started_annotations(action.started_from, job=job.name),
        )

    async def _write_desired(self, cluster: Cluster, action: WriteDesired) -> None:
        metadata = action.record["metadata"]
        generation = self._generation()
        written = str((metadata.get("annotations") or {}).get(LEADER_GENERATION) or "0")
        if written.isdigit() and int(written) > generation:
            raise StaleView(f"a newer leader (generation {written}) has written its desired state.")
        changes: Document = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "annotations": {LEADER_GENERATION: str(generation)},
            },
            "data": desired_entry(action.desired),
        }
        log.info("%s", log_line(action))
        await cluster.patch("ConfigMap", str(metadata["name"]), changes)

    async def _write_status(self, cluster: Cluster, action: WriteStatus) -> None:
        job = action.job
        document = {
            "apiVersion": job.api_version,
            "kind": KIND,
            "metadata": {
                "name": job.name,
                "namespace": job.namespace,
                "resourceVersion": job.resource_version,
            },
            "status": action.status.to_document(),
        }
        await cluster.replace(document, resource=resource_of_job(job), subresource="status")


def log_line(action: WriteDesired) -> str:
    job, desired = action.job.key, action.desired
    if desired.pause:
        words = f"Pausing {job}: {desired.pause}"
    elif desired.nodes:
        counts = " and ".join(f"{count} {role}" for role, count in desired.nodes.items())
        words = f"Scaling {job} to {counts}"
    elif desired.victims:
        words = f"Moving {', '.join(desired.victims)} of {job} to other machines"
    else:
        words = f"Resuming {job}"
    return f"{words} (generation {desired.generation})"


def resource_of_job(job: TrainingJob) -> Resource:
    group = job.api_version.partition("/")[0]
    return PADDLE_TRAINING_JOB if group == PADDLE_TRAINING_JOB.group else TRAINING_JOB


def owner_document(job: TrainingJob) -> Document:
    """Returns the part of a job that owner references need."""
    return {
        "apiVersion": job.api_version,
        "kind": KIND,
        "metadata": {"name": job.name, "namespace": job.namespace, "uid": job.uid},
    }


def event_document(action: EmitEvent, *, moment: datetime.datetime) -> Document:
    job, text = action.job, moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name}.{secrets.token_hex(8)}", "namespace": job.namespace},
        "involvedObject": {
            "apiVersion": job.api_version,
            "kind": KIND,
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
        },
        "reason": action.reason,
        "message": action.message[:_LONGEST_MESSAGE],
        "type": "Warning" if action.is_warning else "Normal",
        "source": {"component": COMPONENT},
        "firstTimestamp": text,
        "lastTimestamp": text,
        "count": 1,
    }
