"""The state of a job's nodes and their pods, and the watchers that are informed of changes.

Ended nodes are kept, also after their pods are deleted: the newest thousand of those, so that a job that is preempted
for weeks does not grow. The state of all nodes is here; what to do about it is decided by `kubernetes_platform`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus

ENDED = (NodePhase.SUCCEEDED, NodePhase.FAILED)
# Ended nodes without a pod that are remembered. All of them have been reported to the listeners.
ENDED_KEPT = 1000
# Pods that the cluster has ended and left behind (evicted, rejected by their machine), kept for people to look at. A
# job may have any number of them in its life.
PODS_KEPT = 100


class NodeTable:
    def __init__(self, *, ended_kept: int = ENDED_KEPT, pods_kept: int = PODS_KEPT) -> None:
        self._ended_kept = ended_kept
        self._pods_kept = pods_kept
        self._statuses: dict[str, NodeStatus] = {}
        # In the order of their ends.
        self._ended: dict[str, None] = {}
        self._stopped: set[str] = set()
        # Nodes whose pods this process has created, and those whose pods the watch has shown.
        self._created: set[str] = set()
        self._seen: set[str] = set()
        # The uids of existing pods.
        self._uids: dict[str, str] = {}
        # Nodes that were ended by the cluster and whose pods exist, in the order of their ends.
        self._left_behind: dict[str, None] = {}
        self._listeners: set[asyncio.Queue[NodeStatus | None]] = set()

    # -- queries ---------------------------------------------------------------------------------------------

    def statuses(self) -> list[NodeStatus]:
        return list(self._statuses.values())

    def names(self) -> set[str]:
        """All nodes of which anything is remembered."""
        return set().union(self._statuses, self._ended, self._stopped, self._created, self._seen, self._uids)

    def status(self, name: str) -> NodeStatus | None:
        return self._statuses.get(name)

    def has_ended(self, name: str) -> bool:
        return name in self._ended

    def is_stopped(self, name: str) -> bool:
        """Whether the end of the node was asked for."""
        return name in self._stopped

    def is_created(self, name: str) -> bool:
        return name in self._created

    def created(self) -> set[str]:
        return set(self._created)

    def never_seen(self, created: set[str]) -> set[str]:
        """Returns those of these nodes whose pods the watch has not shown."""
        return created - self._seen - self._ended.keys()

    def uid(self, name: str) -> str:
        """ "" if the node has no pod, as far as is known."""
        return self._uids.get(name, "")

    # -- changes ---------------------------------------------------------------------------------------------

    def note_stop(self, name: str) -> None:
        self._stopped.add(name)

    def note_created(self, name: str) -> None:
        self._created.add(name)

    def note_response(self, name: str, uid: str) -> None:
        """The pod as its creation returned it; the watch may have been faster."""
        self._uids.setdefault(name, uid)

    def note_pod(self, name: str, uid: str) -> None:
        self._seen.add(name)
        self._uids[name] = uid

    def note_no_pod(self, name: str) -> None:
        self._seen.add(name)
        self._uids.pop(name, None)
        self._left_behind.pop(name, None)

    def report(self, status: NodeStatus) -> None:
        """Informs the listeners if it is news. What a node says after its end is not."""
        before = self._statuses.get(status.name)
        if before == status or (before is not None and before.phase in ENDED):
            return
        self._statuses[status.name] = status
        self.announce(status)

    def end(self, status: NodeStatus) -> list[str]:
        """Returns the nodes whose pods are to be deleted, because too many were left behind."""
        name = status.name
        if name in self._stopped:
            status = dataclasses.replace(status, reason=EndReason.STOPPED)
        self.report(status)
        self._ended[name] = None
        self.forget_oldest()
        excess: list[str] = []
        if status.reason is EndReason.KILLED and name in self._uids:
            self._left_behind[name] = None
            excess = list(self._left_behind)[: max(0, len(self._left_behind) - self._pods_kept)]
            for oldest in excess:
                del self._left_behind[oldest]
        return excess

    def forget_oldest(self) -> None:
        """Forgets ended nodes without a pod, of which nothing more can be learned; and only if there is a listener,
        which has been informed of them then.
        """
        if not self._listeners:
            return
        podless = [name for name in self._ended if name not in self._uids]
        for name in podless[: max(0, len(podless) - self._ended_kept)]:
            del self._ended[name]
            del self._statuses[name]
            self._stopped.discard(name)
            self._created.discard(name)
            self._seen.discard(name)

    # -- listeners -------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[NodeStatus]:
        """Yields the status of every node, then every change, until `close`."""
        queue: asyncio.Queue[NodeStatus | None] = asyncio.Queue()
        for status in self._statuses.values():
            queue.put_nowait(status)
        self._listeners.add(queue)
        try:
            while (status_or_end := await queue.get()) is not None:
                yield status_or_end
        finally:
            self._listeners.discard(queue)

    def announce(self, status: NodeStatus) -> None:
        for listener in self._listeners:
            listener.put_nowait(status)

    def close(self) -> None:
        """Ends all `events`."""
        for listener in self._listeners:
            listener.put_nowait(None)
