"""The reasons that machines report for masters that they do not start: a missing volume, Secret or ConfigMap.

The pod itself shows only "ContainerCreating"; the reason is in its events. They are read for such pods alone, a few
times each, and for a few pods at a time: events have no index, so each request costs what all events cost. Of the other
pods of a job its master reports the same.

Failure modes
    Events may not be listed (an older ClusterRole): logged once, and the status of such jobs has no reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from elasticdl.controller.informer import missing_right
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, uid_of
from elasticdl.platforms.kubernetes.pods.events import last_trouble
from elasticdl.platforms.kubernetes.pods.status import on_its_way

log = logging.getLogger("elasticdl.controller")

# After the pod was seen on its machine. Most masters start sooner.
_LOOK_AFTER_SECONDS = (4.0, 12.0, 45.0, 120.0)
_CONCURRENT_REQUESTS = 2


class StuckMasters:
    """`on_trouble`: called with the pod and the words of its machine."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        on_trouble: Callable[[Document, str], None],
        look_after: tuple[float, ...] = _LOOK_AFTER_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._on_trouble = on_trouble
        self._look_after = look_after
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        self._reported = ""

    def observe(self, pod: Document, *, gone: bool) -> None:
        """Takes a change of a master's pod."""
        uid = uid_of(pod)
        if gone or not on_its_way(pod):
            if (task := self._followed.pop(uid, None)) is not None:
                task.cancel()
        elif uid not in self._followed:
            self._followed[uid] = asyncio.create_task(self._follow(pod))

    def close(self) -> None:
        for task in self._followed.values():
            task.cancel()
        self._followed.clear()

    async def _follow(self, pod: Document) -> None:
        cluster = self._cluster.in_namespace(str(pod["metadata"].get("namespace") or "default"))
        passed = 0.0
        for moment in self._look_after:
            await asyncio.sleep(moment - passed)
            passed = moment
            try:
                async with self._slots:
                    words = await last_trouble(cluster, pod)
            except UserError as error:
                self._report(error)
                continue
            if words:
                self._on_trouble(pod, words)

    def _report(self, error: UserError) -> None:
        trouble = (
            missing_right(error, "events", verbs="verb list")
            if isinstance(error, ClusterError)
            else error.message
        )
        if trouble != self._reported:
            self._reported = trouble
            log.warning("Cannot list the events of masters that do not start: %s", trouble)
