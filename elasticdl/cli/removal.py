"""Pods on their way out, and those that never get there: their machine does not answer, so nobody confirms their end.

Such pods are removed by force, as a job's master does with those of its nodes: where the machine is known not to answer
at once, else when the time that a pod has for its end is long over, by our own clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.kubernetes_platform import SLACK_SECONDS
from elasticdl.platforms.kubernetes.pods.status import grace_seconds, leaving, machine_of, unreachable

_POLL_SECONDS = 0.5
# A person who waits for longer wants to know what for.
_SILENT_SECONDS = 5.0
# After all that pods may take: what is there then is held by something else, a finalizer say.
_PATIENCE_SECONDS = 60.0

Say = Callable[[str], None]


def overdue(pod: Document, *, seconds: float) -> bool:
    """Whether to remove by force a pod that was told to end so long ago."""
    return unreachable(pod) or seconds > grace_seconds(pod) + SLACK_SECONDS


async def see_off(
    cluster: Cluster, labels: Mapping[str, str], *, those: Callable[[Document], bool], say: Say
) -> None:
    """Returns when none of those pods, which have been deleted, is there any more. By the labels alone they are not
    known: somebody else may have made others of the same names meanwhile.
    """
    begun = time.monotonic()
    forced: set[str] = set()
    longest = 0.0
    told = False
    while pods := [pod for pod in (await cluster.list("Pod", labels=labels)).items if those(pod)]:
        seconds = time.monotonic() - begun
        for pod in pods:
            longest = max(longest, grace_seconds(pod))
            await _hasten(cluster, pod, forced, seconds=seconds, say=say)
        names = ", ".join(pod["metadata"]["name"] for pod in pods)
        if seconds > _SILENT_SECONDS and not told:
            told = True
            say(f"Waiting for the end of {names}.")
        if seconds > longest + _PATIENCE_SECONDS:
            raise UserError(
                f"These pods do not go: {names}.",
                hint=f"`kubectl describe pod {pods[0]['metadata']['name']}` shows what holds them.",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _hasten(cluster: Cluster, pod: Document, forced: set[str], *, seconds: float, say: Say) -> None:
    metadata = pod["metadata"]
    name, uid = str(metadata["name"]), str(metadata["uid"])
    if not leaving(pod):
        # Made by a master in its last moment.
        await cluster.delete("Pod", name, uid=uid)
    elif uid not in forced and overdue(pod, seconds=seconds):
        forced.add(uid)
        why = (
            f"{machine_of(pod)} does not answer"
            if unreachable(pod)
            else f"it has not ended in {seconds:.0f} s"
        )
        say(f"Pod {name} is removed by force: {why}.")
        await cluster.delete("Pod", name, grace_seconds=0, uid=uid)
