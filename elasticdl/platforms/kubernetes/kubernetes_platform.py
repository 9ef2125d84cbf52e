"""Nodes as pods, seen from the job's master.

One watch over the pods of the job is all that is asked of the API server while nothing changes. A new master finds the
pods that exist. `node_table` keeps what is known of the nodes, `fenced_changes` makes sure that only the current master
changes anything, `place_addresses` keeps the Services.

Failure modes
    A lost machine keeps its pods "running" for minutes, and then "terminating" indefinitely, because its kubelet cannot
    confirm their end. Such a pod counts as ended when its machine has not answered for a while, or its grace period is
    over (by our own clock: those of machines differ), and is deleted by force. A namespace whose quota is used up, or a
    webhook that fails: the node waits with Kubernetes' message and is retried. A pod that Kubernetes rejects cannot
    start, nor can one whose program no machine has started yet; where others have begun, the machine is at fault, and
    the next pod may get another. An unreachable API server: everything here waits for it. One that has just started
    refuses everything for some seconds, as if a right were missing: a refused request is retried for a minute; only a
    job that never had a pod fails at once. A node that is stopped while it is being created: its pod is deleted as
    soon as it exists. A master that was replaced: see `fenced_changes`; besides, only the pod with the uid that was
    seen is deleted, whichever has its name by now. A job of the same name whose job record has just been deleted: its
    pods are not ours, and what needs their names waits until they are gone. A sidecar that runs on when its node has
    ended: the pod is deleted. A pod that was created and deleted while the watch was broken: it is missed in the next
    list.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.kubernetes.client import MAY_NOT, Cluster, ClusterError, Document, uid_of
from elasticdl.platforms.kubernetes.fenced_changes import ATTEMPT_SECONDS, REFUSED_SECONDS, FencedChanges
from elasticdl.platforms.kubernetes.node_table import ENDED, ENDED_KEPT, PODS_KEPT, NodeTable
from elasticdl.platforms.kubernetes.place_addresses import ALREADY_EXISTS, PlaceAddresses, is_of_job
from elasticdl.platforms.kubernetes.pods.events import LOOK_AFTER_SECONDS, troubles
from elasticdl.platforms.kubernetes.pods.manifest import NO_NOTICE, node_pod, notice_seconds, secret_files
from elasticdl.platforms.kubernetes.pods.memory import with_memory
from elasticdl.platforms.kubernetes.pods.status import (
    grace_seconds,
    leaving,
    lost,
    node_status,
    on_its_way,
    outlived,
    unreachable,
    with_cause,
)
from elasticdl.platforms.kubernetes.quota_queue import QuotaQueue
from elasticdl.platforms.kubernetes.watch import Asked, Synced, watch
from elasticdl.platforms.platform import (
    MASTER_ROLE,
    EndReason,
    NodePhase,
    NodeRequest,
    NodeStatus,
    Platform,
)

log = logging.getLogger("elasticdl.platforms")

# How long after its grace period the end of a pod may take to be reported.
SLACK_SECONDS = 5.0
# How long a machine may be out of reach before its pods are replaced. A cluster notices it after 40 s by default.
LOST_SECONDS = 30.0
# Between two attempts to start a node for which the namespace has no quota.
QUOTA_SECONDS = 5.0
# Errors inside the API server that are retried before they are reported: a new leader takes a second or two.
_ERRORS_BORNE = 4
_ERROR_INSIDE = 500


class KubernetesPlatform(Platform):
    """`owner`: the job record, as the cluster has it. `before_changes`: raises if nothing is this master's to change
    any more. `pod_ip`: of the pod that this runs in; all are of one address family. Watches from its first use on.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec: JobSpec,
        *,
        owner: Document,
        before_changes: Callable[[], Awaitable[None]] | None = None,
        pod_ip: str = "",
        slack_seconds: float = SLACK_SECONDS,
        lost_seconds: float = LOST_SECONDS,
        quota_seconds: float = QUOTA_SECONDS,
        look_after_seconds: tuple[float, ...] = LOOK_AFTER_SECONDS,
        attempt_seconds: float = ATTEMPT_SECONDS,
        ended_kept: int = ENDED_KEPT,
        pods_kept: int = PODS_KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._spec = spec
        self._owner = owner
        self._pod_ip = pod_ip
        self._slack_seconds = slack_seconds
        self._lost_seconds = lost_seconds
        self._look_after_seconds = look_after_seconds
        self._attempt_seconds = attempt_seconds
        self._clock = clock
        self._table = NodeTable(ended_kept=ended_kept, pods_kept=pods_kept)
        self._changes = FencedChanges(before_changes, clock=clock)
        self._addresses = PlaceAddresses(cluster, spec, owner=owner, changes=self._changes, clock=clock)
        self._servers_first = _ServersFirst()
        self._queue = QuotaQueue(self._start_queued, seconds=quota_seconds)
        # Roles of which a program has begun.
        self._begun: set[str] = set()
        # The job has had a pod: what is needed for that was there.
        self._has_had_pod = False
        # Since when the creation of nodes is refused.
        self._refused_since: dict[str, float] = {}
        # When to give up pods that do not end.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Nodes that do not begin: who reads their events, and the last warning among them.
        self._event_readers: dict[str, asyncio.Task[None]] = {}
        self._warnings: dict[str, str] = {}
        self._synced = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._closed = False

    # -- the interface ---------------------------------------------------------------------------------------

    async def start(self, request: NodeRequest) -> None:
        await self._ready()
        if (known := self._table.status(request.name)) is not None:
            # The caller may not have listened when this was reported.
            self._table.announce(known)
            return
        self._table.report(NodeStatus(name=request.name, role=request.role, phase=NodePhase.PENDING))
        async with self._servers_first.turn(request.role):
            is_done = await self._create(request)
        if not is_done:
            self._queue.join(request)

    async def stop(self, name: str, *, grace_seconds: float) -> None:
        await self._ready()
        status = self._table.status(name)
        if status is None or status.phase in ENDED:
            return
        self._table.note_stop(name)
        pod = naming.pod_name(self._spec, name)
        # A grace of 0 would only remove the pod object, with its container running on for a while.
        grace = max(1, math.ceil(grace_seconds))
        notice = notice_seconds(self._spec, status.role)
        if grace_seconds > 0 and notice:
            # The signal is to come at once. Where this arrives too late, the grace period begins after the notice.
            skip = partial(self._cluster.patch, "Pod", pod, NO_NOTICE, patience=self._attempt_seconds)
            await self._changes.insist(skip)
            grace += notice
        if await self._delete(pod, grace_seconds=grace, uid=self._table.uid(name)) is None:
            self._end(
                NodeStatus(name=name, role=status.role, phase=NodePhase.FAILED, message="it had not begun")
            )
            await self._delete_if_created(name)

    async def nodes(self) -> list[NodeStatus]:
        await self._ready()
        return self._table.statuses()

    async def events(self) -> AsyncIterator[NodeStatus]:
        """Ends when the platform is closed; raises if the pods may not be watched."""
        await self._ready()
        async for status in self._table.events():
            yield status
        if self._failure is not None:
            raise self._failure

    async def addresses(self, places: dict[str, int]) -> dict[str, list[str]]:
        return await self._addresses.all(places)

    async def close(self) -> None:
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._changes.close()
        self._table.close()

    # -- creating and deleting pods --------------------------------------------------------------------------

    async def _create(self, request: NodeRequest) -> bool:
        """False if it cannot be created now, and is to be retried."""
        try:
            pod = node_pod(self._spec, await self._placed(request), owner=self._owner)
            if self._table.is_stopped(request.name):
                return True
            await self._create_pod(pod, request.name)
        except ClusterError as error:
            node = NodeStatus(
                name=request.name, role=request.role, phase=NodePhase.PENDING, message=error.message
            )
            if _may_pass(error) or self._is_tolerated(error, request.name):
                self._table.report(node)
                return False
            if error.status == 404:
                # The namespace is being deleted, and the job with it.
                raise
            self._end(dataclasses.replace(node, phase=NodePhase.FAILED, reason=EndReason.CANNOT_START))
            return True
        self._table.note_created(request.name)
        self._has_had_pod = True
        self._refused_since.pop(request.name, None)
        await self._delete_if_created(request.name)
        return True

    def _is_tolerated(self, error: ClusterError, node: str) -> bool:
        """A right may be missing, or the server may have started a moment ago: only time tells."""
        if error.status not in MAY_NOT or not self._has_had_pod:
            return False
        now = self._clock()
        return now - self._refused_since.setdefault(node, now) < REFUSED_SECONDS

    async def _create_pod(self, pod: Document, node: str) -> None:
        create = partial(
            self._cluster.create, pod, errors_borne=_ERRORS_BORNE, patience=self._attempt_seconds
        )
        try:
            self._table.note_response(node, uid_of(await self._changes.apply(create)))
        except ClusterError as error:
            if error.reason != ALREADY_EXISTS:
                raise
            found = await self._cluster.get("Pod", pod["metadata"]["name"])
            if found is None or not is_of_job(found, self._owner):
                raise
            # Created by an earlier master, or by an attempt of ours that was reported to have failed.

    async def _delete_if_created(self, name: str) -> None:
        """A pod that was created while its node was stopped: the deletion came before there was anything to delete."""
        table = self._table
        if table.is_created(name) and table.has_ended(name) and table.is_stopped(name):
            pod = naming.pod_name(self._spec, name)
            await self._delete(pod, grace_seconds=1, uid=table.uid(name))

    async def _delete(self, pod: str, *, grace_seconds: int | None, uid: str) -> Document | None:
        return await self._changes.insist(
            partial(
                self._cluster.delete,
                "Pod",
                pod,
                grace_seconds=grace_seconds,
                uid=uid,
                patience=self._attempt_seconds,
            )
        )

    async def _start_queued(self, request: NodeRequest) -> bool:
        is_over = self._table.status(request.name) is None or self._table.has_ended(request.name)
        return is_over or await self._create(request)

    async def _placed(self, request: NodeRequest) -> NodeRequest:
        """Adds to a request the files of its credentials, and its address, which only this platform knows."""
        number = int(request.name.rpartition("-")[2])
        is_server = self._spec.program == "definition" and request.role == "ps"
        environment = {**request.environment, **secret_files(self._spec, serves=is_server)}
        if self._addresses.is_addressed(request.role):
            address = await self._addresses.point(
                request.role, request.place, index=number, errors_borne=_ERRORS_BORNE
            )
            if is_server:
                environment |= {
                    "ELASTICDL_BIND": naming.everywhere(self._pod_ip),
                    "ELASTICDL_PORT": str(naming.NODE_PORT),
                    "ELASTICDL_ADVERTISE": address,
                }
        return dataclasses.replace(request, environment=environment)

    # -- watching pods ---------------------------------------------------------------------------------------

    async def _ready(self) -> None:
        if self._closed:
            raise UserError("This platform has been closed.")
        if self._watching is None:
            self._watching = self._spawn(self._watch())
            self._spawn(self._queue.run())
        if not self._synced.is_set():
            await self._synced.wait()
        if self._failure is not None:
            raise self._failure

    async def _watch(self) -> None:
        labels = {naming.JOB_LABEL: self._spec.job_name, "app": naming.APP}
        created: set[str] = set()
        async for change in watch(self._cluster, "Pod", labels=labels):
            if isinstance(change, Asked):
                created = self._table.created()
            elif isinstance(change, Synced):
                self._synced.set()
                for name in self._table.never_seen(created):
                    self._miss(name)
            else:
                self._see(change.document, change.gone)

    def _miss(self, name: str) -> None:
        """Reports a node whose pod is missing in the list of all pods: it was deleted while the watch was broken."""
        self._table.note_no_pod(name)
        self._end(
            NodeStatus(
                name=name,
                role=name.rpartition("-")[0],
                phase=NodePhase.FAILED,
                reason=EndReason.KILLED,
                message="its pod was deleted before it was seen",
            )
        )

    def _see(self, pod: Document, gone: bool) -> None:
        name = naming.node_of(pod)
        if not name or name.rpartition("-")[0] == MASTER_ROLE or not is_of_job(pod, self._owner):
            return
        self._has_had_pod = True
        if gone:
            self._table.note_no_pod(name)
        else:
            self._table.note_pod(name, uid_of(pod))
        if self._table.has_ended(name):
            self._table.forget_oldest()
            return
        status = self._status_of(pod, name, gone)
        if status.phase in ENDED:
            self._end(status)
            if outlived(pod) and not gone and not leaving(pod):
                # It would occupy its machine indefinitely.
                self._spawn(self._clear_away(name))
            return
        self._table.report(status)
        if leaving(pod):
            self._give_up_after(grace_seconds(pod) + self._slack_seconds, name, pod)
        elif unreachable(pod):
            self._give_up_after(self._lost_seconds, name, pod)
        elif name in self._timers:
            self._timers.pop(name).cancel()

    def _status_of(self, pod: Document, name: str, gone: bool) -> NodeStatus:
        before = self._table.status(name)
        was_leaving = before is not None and before.phase is NodePhase.LEAVING
        status = node_status(pod, gone=gone, stopped=self._table.is_stopped(name), left=was_leaving)
        status = self._blame_machine(with_memory(status, pod, self._spec))
        if before is not None:
            status = with_cause(status, before.message)
        if not gone and on_its_way(pod):
            status = dataclasses.replace(status, message=self._warnings.get(name, ""))
            if name not in self._event_readers:
                self._event_readers[name] = self._spawn(self._read_events(status, pod))
        elif name in self._event_readers:
            self._event_readers[name].cancel()
        return status

    def _blame_machine(self, status: NodeStatus) -> NodeStatus:
        """Blames the machine for a node that cannot start if others of its role have, with the same image and command:
        another machine may work.
        """
        cannot_start = status.reason is EndReason.CANNOT_START
        if status.phase is NodePhase.RUNNING or (status.exit_code is not None and not cannot_start):
            self._begun.add(status.role)
        if not cannot_start or status.role not in self._begun:
            return status
        return dataclasses.replace(
            status, reason=EndReason.KILLED, message=f"its machine cannot start it: {status.message}"
        )

    async def _read_events(self, status: NodeStatus, pod: Document) -> None:
        async for warning in troubles(self._cluster, pod, after=self._look_after_seconds):
            self._warnings[status.name] = warning
            self._table.report(dataclasses.replace(status, message=warning))

    # -- ends ------------------------------------------------------------------------------------------------

    def _give_up_after(self, seconds: float, name: str, pod: Document) -> None:
        """Unless that has been decided before."""
        if name not in self._timers:
            self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._give_up, name, pod)

    def _give_up(self, name: str, pod: Document) -> None:
        if self._table.has_ended(name):
            return
        status = lost(pod, stopped=self._table.is_stopped(name))
        log.warning("Deleting the pod of %s: it has not ended in time: %s", name, status.message)
        self._spawn(self._remove(pod, status))

    async def _remove(self, pod: Document, status: NodeStatus) -> None:
        # First, so that it is not taken for its replacement.
        await self._delete(pod["metadata"]["name"], grace_seconds=0, uid=uid_of(pod))
        self._end(status)

    async def _clear_away(self, name: str) -> None:
        """Deletes the pod of a node that has ended, if it still exists."""
        if uid := self._table.uid(name):
            await self._delete(naming.pod_name(self._spec, name), grace_seconds=None, uid=uid)

    def _end(self, status: NodeStatus) -> None:
        name = status.name
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        if (reader := self._event_readers.pop(name, None)) is not None:
            reader.cancel()
        self._warnings.pop(name, None)
        self._refused_since.pop(name, None)
        for left_behind in self._table.end(status):
            self._spawn(self._clear_away(left_behind))

    # -- tasks -----------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nothing can be reported any more.
            self._failure = error
            self._synced.set()
            self._table.close()


class _ServersFirst:
    """Lets parameter servers be created before other nodes: the address of a server takes a request more than a worker.
    Where room is short, workers that came first would be preempted for servers of a higher priority.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._all_created = asyncio.Event()
        self._all_created.set()

    @contextlib.asynccontextmanager
    async def turn(self, role: str) -> AsyncIterator[None]:
        if role != "ps":
            await self._all_created.wait()
            yield
            return
        self._under_way += 1
        self._all_created.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._all_created.set()


def _may_pass(error: ClusterError) -> bool:
    """The quota is used up, or the cluster has a fault. Many objects that are counted against a quota at once conflict
    (409) and are to be retried; an object of an earlier job of this name is removed by the cluster.
    """
    return error.no_room or error.reason in ("Conflict", ALREADY_EXISTS) or error.status == _ERROR_INSIDE
