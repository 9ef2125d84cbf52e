"""Watches how the master of a submitted job starts: until its first status, or until it is known what prevents it."""

from __future__ import annotations

import asyncio
import math
import time

from elasticdl.catalog.job import StartReport
from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.catalog.kubernetes.pod_logs import last_lines
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.jobs.status import RunState
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.naming import master_name, record_name
from elasticdl.platforms.kubernetes.pods.events import last_trouble
from elasticdl.platforms.kubernetes.pods.status import last_end, node_status, on_its_way
from elasticdl.platforms.platform import EndReason, NodePhase

# Kubernetes' word for a pod that finds no resources: a job may well wait for them.
_UNSCHEDULABLE = "Unschedulable"
# Enough for a traceback.
_LOG_LINES = 20


async def watch_start(cluster: Cluster, job: str, timing: Timing) -> StartReport:
    """Problems are in Kubernetes' own words; of a master that has exited, with the end of its log."""
    deadline = time.monotonic() + timing.start_timeout_seconds
    events_at = time.monotonic() + timing.events_after_seconds
    while time.monotonic() < deadline:
        record, pod = await asyncio.gather(
            cluster.get("ConfigMap", record_name(job)), cluster.get("Pod", master_name(job))
        )
        if record is None or pod is None:
            return StartReport(problem="its pod has been deleted.")
        observed = ObservedJob(name=job, document=record, master=pod)
        if observed.has_started:
            return StartReport(has_failed=observed.state is RunState.FAILED)
        # The phase of a pod whose container is always restarted says nothing.
        if end := last_end(pod):
            return await _exited(cluster, pod, end, timing)
        message = node_status(pod).message
        if message:
            return StartReport(problem=message, is_waiting=message.startswith(_UNSCHEDULABLE))
        if time.monotonic() > events_at and on_its_way(pod):
            events_at = math.inf
            if trouble := await last_trouble(cluster, pod):
                return StartReport(problem=trouble)
        await asyncio.sleep(timing.start_poll_seconds)
    problem = f"nothing is known of it after {timing.start_timeout_seconds:.0f} s."
    return StartReport(problem=problem, is_waiting=True)


async def _exited(cluster: Cluster, pod: Document, end: str, timing: Timing) -> StartReport:
    status = node_status(pod)
    # A container that could not even be started has no log.
    if status.reason is EndReason.CANNOT_START:
        return StartReport(problem=end, is_crashing=True)
    lines = await last_lines(
        cluster,
        pod["metadata"]["name"],
        _LOG_LINES,
        previous=status.phase is NodePhase.RUNNING,
        timeout_seconds=timing.log_drain_seconds,
    )
    return StartReport(problem=f"it has ended: {end}", log_lines=lines, is_crashing=True)
