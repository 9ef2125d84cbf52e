"""Events of pods that do not start: a pod itself shows only "ContainerCreating" while a volume, a Secret or a ConfigMap
of its is missing. The kubelet reports the reason in events, which are read only for such pods, a few times each, to
limit the load on a cluster that is slow to pull images.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document

log = logging.getLogger("elasticdl.platforms")

# Counted from the scheduling of the pod. A missing volume is reported within a second; one that cannot be
# attached, or a network that is not ready, after tens of seconds.
LOOK_AFTER_SECONDS = (2.0, 8.0, 30.0, 120.0)


async def troubles(
    cluster: Cluster, pod: Document, *, after: tuple[float, ...] = LOOK_AFTER_SECONDS
) -> AsyncIterator[str]:
    """The last trouble with the pod at each look, if there is any."""
    passed = 0.0
    for moment in after:
        await asyncio.sleep(moment - passed)
        passed = moment
        try:
            words = await last_trouble(cluster, pod)
        except ClusterError as error:
            # An older role, or one of the user's own: the job does without.
            log.info("Reading events of pods failed: %s", error.message)
            return
        if words:
            yield words


async def last_trouble(cluster: Cluster, pod: Document) -> str:
    """Asks now. Empty if there is none."""
    of_pod = {"involvedObject.uid": str(pod["metadata"]["uid"]), "type": "Warning"}
    events = (await cluster.list("Event", fields=of_pod)).items
    failures = [event for event in events if _tells(str(event.get("reason")))]
    if not failures:
        return ""
    last = max(failures, key=_moment)
    return f"{last.get('reason')}: {last.get('message')}"


def _tells(reason: str) -> bool:
    """FailedMount, FailedAttachVolume, FailedCreatePodSandBox and their like. That there was no room for it is over."""
    return reason == "NetworkNotReady" or (reason.startswith("Failed") and reason != "FailedScheduling")


def _moment(event: Document) -> str:
    """Older and newer ways to write it down; both sort as text."""
    series = event.get("series") or {}
    metadata = event["metadata"]
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or metadata.get("creationTimestamp")
        or ""
    )
