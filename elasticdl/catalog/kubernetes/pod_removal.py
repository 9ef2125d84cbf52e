"""Deletes pods, by force where nothing confirms their end.

The end of a pod is confirmed by its machine. A pod is removed by force if its machine is known not to answer, or if its
grace period is long over by our own clock; a job's master does the same with its nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.observer import JobObserver
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.kubernetes_platform import SLACK_SECONDS
from elasticdl.platforms.kubernetes.pods.status import grace_seconds, leaving, machine_of, unreachable


def is_overdue(pod: Document, *, seconds: float) -> bool:
    """Whether to remove by force a pod that was deleted so long ago."""
    return unreachable(pod) or seconds > grace_seconds(pod) + SLACK_SECONDS


async def await_deletion(
    cluster: Cluster,
    labels: Mapping[str, str],
    *,
    those: Callable[[Document], bool],
    observer: JobObserver,
    timing: Timing,
) -> None:
    """Returns when none of those pods, which have been deleted, is left. Labels do not suffice to tell them: others may
    have created pods of the same names meanwhile.
    """
    begun = time.monotonic()
    forced: set[str] = set()
    longest_grace = 0.0
    noted = False
    while pods := [pod for pod in (await cluster.list("Pod", labels=labels)).items if those(pod)]:
        seconds = time.monotonic() - begun
        for pod in pods:
            longest_grace = max(longest_grace, grace_seconds(pod))
            await _delete_again(cluster, pod, forced, seconds=seconds, observer=observer)
        names = ", ".join(pod["metadata"]["name"] for pod in pods)
        if seconds > timing.deletion_note_seconds and not noted:
            noted = True
            observer.note(f"Waiting for the end of {names}.")
        if seconds > longest_grace + timing.deletion_timeout_seconds:
            raise UserError(
                f"These pods do not go: {names}.",
                hint=f"`kubectl describe pod {pods[0]['metadata']['name']}` shows what holds them.",
            )
        await asyncio.sleep(timing.poll_seconds)


async def _delete_again(
    cluster: Cluster, pod: Document, forced: set[str], *, seconds: float, observer: JobObserver
) -> None:
    metadata = pod["metadata"]
    name, uid = str(metadata["name"]), str(metadata["uid"])
    if not leaving(pod):
        # A master created it in its last moment.
        await cluster.delete("Pod", name, uid=uid)
    elif uid not in forced and is_overdue(pod, seconds=seconds):
        forced.add(uid)
        why = (
            f"{machine_of(pod)} does not answer"
            if unreachable(pod)
            else f"it has not ended in {seconds:.0f} s"
        )
        observer.note(f"Pod {name} is removed by force: {why}.")
        await cluster.delete("Pod", name, grace_seconds=0, uid=uid)
