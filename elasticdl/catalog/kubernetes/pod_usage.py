"""CPU and memory use of the pods of a job, as the cluster's metrics API has it.

The API is served by metrics-server, or by an adapter in its place. A cluster without one, or one that does not let
this user read metrics, knows nothing of use: that is no error. GPUs are not among these metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from elasticdl.catalog.job import NodeUsage
from elasticdl.catalog.kubernetes.pod_logs import node_name
from elasticdl.errors import UserError
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections.resources import Quantity
from elasticdl.platforms.kubernetes.api_resources import POD_METRICS
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.naming import JOB_LABEL

# A client that is asked again and again does not insist.
_TIMEOUT_SECONDS = 3.0


async def pod_usage(cluster: Cluster, job: str) -> Mapping[str, NodeUsage]:
    """Returns the use of each pod by the name of its node."""
    try:
        listing = cluster.list(POD_METRICS, labels={JOB_LABEL: job})
        found = await asyncio.wait_for(listing, _TIMEOUT_SECONDS)
    except (UserError, asyncio.TimeoutError):
        return {}
    return {node_name(pod): _usage(pod) for pod in found.items if pod["metadata"].get("labels")}


def _usage(pod: Document) -> NodeUsage:
    containers = [container.get("usage") or {} for container in pod.get("containers") or []]
    cpu, memory = _sum(containers, "cpu"), _sum(containers, "memory")
    return NodeUsage(cpu_cores=cpu, memory_bytes=None if memory is None else int(memory))


def _sum(containers: list[Document], name: str) -> float | None:
    try:
        amounts = [float(Quantity(text=str(usage[name])).amount) for usage in containers if name in usage]
    except BadValue:
        return None
    return sum(amounts) if amounts else None
