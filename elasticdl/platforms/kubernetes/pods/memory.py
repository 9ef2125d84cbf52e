"""Memory of a node that ran out of it: whether its replacement gets more, and the advice to its user if not.

Pure. What the node had is in its pod, so that a master which was not there then knows it too.
"""

from __future__ import annotations

import dataclasses

from elasticdl.jobs.sections.resources import Quantity, most_memory
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.pods.status import Document, own_container
from elasticdl.platforms.platform import EndReason, NodeStatus


def with_memory(status: NodeStatus, pod: Document, spec: JobSpec) -> NodeStatus:
    """The same status, if it is of another end."""
    if status.reason is not EndReason.OUT_OF_MEMORY:
        return status
    role = status.role
    most = most_memory(spec.nodes.resource_request(role), spec.nodes.resource_limit(role))
    had = (
        (own_container(pod, pod["spec"]["containers"]).get("resources") or {}).get("limits", {}).get("memory")
    )
    if had is None:
        words = (
            f"it has no limit, and its machine no more; --{role}_resource_request=memory=... asks for some"
        )
    elif most is not None and Quantity(text=had).amount < most.amount:
        return dataclasses.replace(
            status, message=f"{status.message} ({had}); the next one gets more", gets_more_memory=True
        )
    else:
        words = f"killed at its limit of {had}; raise --{role}_resource_limit"
    return dataclasses.replace(status, message=f"{status.message}: {words}")
