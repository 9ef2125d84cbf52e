"""Reads a whole cluster for the planner: its nodes, its pods, and the sizes that job records allow.

Only lists objects. An account that may not list the nodes of the cluster or the pods of all namespaces gets the
`ClusterError` of the request, which names the missing right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.errors import UserError
from elasticdl.jobs.job_record import JobRecord
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.manifests import JOB_ROLE
from elasticdl.platforms.kubernetes.naming import APP, JOB_LABEL, ROLE_LABEL

Range = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class ClusterDocuments:
    """`documents`: nodes and pods. `ranges`: of each job (namespace/name), the sizes that a role may have; a role
    without a maximum is not in it, for only its user changes its size.
    """

    documents: tuple[Document, ...]
    ranges: Mapping[str, Mapping[str, Range]]


async def read_cluster_documents(cluster: Cluster) -> ClusterDocuments:
    everywhere = cluster.all_namespaces()
    nodes = await everywhere.list("Node")
    pods = await everywhere.list("Pod")
    records = await everywhere.list("ConfigMap", labels={"app": APP, ROLE_LABEL: JOB_ROLE})
    ranges = {}
    for record in records.items:
        metadata = record["metadata"]
        name = (metadata.get("labels") or {}).get(JOB_LABEL)
        if name and (found := _ranges_of(record)) is not None:
            ranges[f"{metadata.get('namespace') or 'default'}/{name}"] = found
    return ClusterDocuments(documents=(*nodes.items, *pods.items), ranges=ranges)


def _ranges_of(record: Document) -> dict[str, Range] | None:
    """Returns None for a record that this version cannot read: the job then counts with the size it has."""
    try:
        nodes = JobRecord.of(record.get("data")).spec().nodes
    except UserError:
        return None
    found = {role: nodes.range_of(role) for role in ("worker", "ps")}
    return {role: (max(low, 1), high) for role, (low, high) in found.items() if high is not None}
