"""Nodes as pods, seen from the job's master.

One watch over the pods of the job is all that is asked of the API server while nothing changes. What it tells is kept,
ended nodes included, also after their pods are deleted: of those the newest thousand, so that a job that is preempted
for weeks does not grow. A new master knows of the pods that are there.

Failure modes
    A machine that is lost keeps its pods "running" for minutes, and then "terminating" for ever, because nobody is
    there to confirm their end. Such a pod counts as ended when its machine has not answered for a while, or its grace
    is over (by our own clock: those of machines differ), and is removed by force. A namespace without room for a pod
    (a quota), or somebody between us and the cluster who fails (a webhook): the node waits with Kubernetes' words for
    it and is tried again. A pod that Kubernetes does not take at all cannot start, nor can one whose program no machine
    has started yet; where others have begun, it is the machine that is not in order, and the next pod may be given to
    another. An API server that is away: everything here waits for it. One that has just started refuses everything for
    some seconds, as if a right were missing: what it refuses is asked for again for a minute. Only a job that never had
    a pod is told at once. A node that is stopped while its creation is under way: its pod goes as soon as it is there.
    A master that was cut off and replaced meanwhile: before each attempt to make or end a pod, or to lead a place to
    one, it is asked whether there is another (`before_changes`), and only the very pod that was seen is ended, whoever
    has its name by now. A job of the same name whose record has just been deleted: its pods and its services are not
    ours, and what needs their names waits until they are gone; addresses, without which there is nothing to be told of
    the job, not for ever. A container of somebody else that runs on when its node has ended: the pod is deleted. A pod
    that came and went while the watch was broken: it is missed in the next list.
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
from typing import Any, TypeVar

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.kubernetes.client import (
    MAY_NOT,
    Cluster,
    ClusterAway,
    ClusterError,
    Document,
    Pauses,
    owners_of,
    uid_of,
)
from elasticdl.platforms.kubernetes.manifests import place_selector, place_service
from elasticdl.platforms.kubernetes.pod_events import LOOK_AFTER_SECONDS, troubles
from elasticdl.platforms.kubernetes.pod_manifests import NO_NOTICE, node_pod, notice_seconds, secret_files
from elasticdl.platforms.kubernetes.pod_memory import with_memory
from elasticdl.platforms.kubernetes.pod_status import (
    grace_seconds,
    leaving,
    lost,
    node_status,
    on_its_way,
    outlived,
    unreachable,
    with_cause,
)
from elasticdl.platforms.kubernetes.quota_queue import Line
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

_ENDED = (NodePhase.SUCCEEDED, NodePhase.FAILED)
# How long after its grace the end of a pod may take to be told.
SLACK_SECONDS = 5.0
# How long a machine may be out of reach before its pods are replaced. That a cluster notices it takes 40 s by default.
LOST_SECONDS = 30.0
# Between two attempts to start a node for which there is no room in the namespace.
QUOTA_SECONDS = 5.0
# How long an API server may refuse what it took before. One that has started anew knows all rights within seconds.
REFUSED_SECONDS = 60.0
# How long a service of a job that was deleted may take to go, if addresses are to be given out: until they are, nobody
# hears of the new job, nor can end it. The cluster removes it within seconds, and what holds it may take a minute.
GOING_SECONDS = 120.0
# One attempt to change something. After that it is asked again whether this is still the job's master.
_ATTEMPT_SECONDS = 5.0
# Ended nodes without a pod that are remembered. All of them have been told; who asks for more than that is a person.
ENDED_KEPT = 1000
# Pods of nodes that the cluster has ended, and that it leaves behind (evicted, not taken by their machine), for people
# to look at. There is no limit to how many there may be of those in the life of a job.
PODS_KEPT = 100
# Errors inside the API server that are passed over before they are told: a new leader takes a second or two.
_ERRORS_BORNE = 4
_ERROR = 500
# That there is something of that name.
_TAKEN = "AlreadyExists"

_Answer = TypeVar("_Answer")


class KubernetesPlatform(Platform):
    """`owner`: the job's record, as the cluster has it. `before_changes`: raises if nothing is this master's to change
    any more. `pod_ip`: of the pod that this runs in; all are of one kind. Watches from its first use on.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._spec = spec
        self._owner = owner
        self._before_changes = before_changes
        # The question under way: one for all who are about to change something.
        self._checking: asyncio.Task[None] | None = None
        self._pod_ip = pod_ip
        self._slack_seconds = slack_seconds
        self._lost_seconds = lost_seconds
        self._look_after_seconds = look_after_seconds
        self._clock = clock
        self._statuses: dict[str, NodeStatus] = {}
        # The names of those that have, in that order.
        self._ended: dict[str, None] = {}
        self._stopped: set[str] = set()
        # Whose pods this process has made.
        self._made: set[str] = set()
        # Whose pods the watch has told of.
        self._seen: set[str] = set()
        # Of the pods that are there.
        self._uids: dict[str, str] = {}
        # Those that were ended by others and are there still, in that order.
        self._left_behind: dict[str, None] = {}
        # Roles of which a program has begun.
        self._begun: set[str] = set()
        # The job has had a pod: what is needed for that was there.
        self._taken = False
        # Since when nodes are refused that may not be made.
        self._refused_since: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._line = Line(self._start_in_line, seconds=quota_seconds)
        self._looking: dict[str, asyncio.Task[None]] = {}
        # What events have told of nodes that do not begin.
        self._troubles: dict[str, str] = {}
        self._listeners: set[asyncio.Queue[NodeStatus | None]] = set()
        self._synced = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._closed = False
        # Which node has each place with an address of its own, as far as this process has said so.
        self._in_place: dict[tuple[str, int], int] = {}
        self._clusterips: dict[tuple[str, int], str] = {}
        # Servers that are being made, and that there are none of them.
        self._servers_under_way = 0
        self._servers_made = asyncio.Event()
        self._servers_made.set()

    # -- nodes -----------------------------------------------------------------------------------------------

    async def start(self, request: NodeRequest) -> None:
        await self._ready()
        if (known := self._statuses.get(request.name)) is not None:
            # Whoever asks may not have listened when this was told.
            self._announce(known)
            return
        self._tell(NodeStatus(name=request.name, role=request.role, phase=NodePhase.PENDING))
        async with self._servers_first(request.role):
            made = await self._create(request)
        if not made:
            self._line.join(request)

    @contextlib.asynccontextmanager
    async def _servers_first(self, role: str) -> AsyncIterator[None]:
        """A server's address takes a call more than a worker. Where room is short, workers that came first would be
        ended again for servers of a higher priority.
        """
        if role != "ps":
            await self._servers_made.wait()
            yield
            return
        self._servers_under_way += 1
        self._servers_made.clear()
        try:
            yield
        finally:
            self._servers_under_way -= 1
            if not self._servers_under_way:
                self._servers_made.set()

    async def stop(self, name: str, *, grace_seconds: float) -> None:
        await self._ready()
        status = self._statuses.get(name)
        if status is None or status.phase in _ENDED:
            return
        self._stopped.add(name)
        pod = naming.pod_name(self._spec, name)
        # None at all would only take the pod out of sight, with its container running on for a while.
        grace = max(1, math.ceil(grace_seconds))
        notice = notice_seconds(self._spec, status.role)
        if grace_seconds > 0 and notice:
            # The signal is to come at once. Where that is not heard in time, the grace begins after the notice.
            sign = partial(self._cluster.patch, "Pod", pod, NO_NOTICE, patience=_ATTEMPT_SECONDS)
            await self._insist(partial(self._as_master, sign, through_errors=True))
            grace += notice
        if await self._delete(pod, grace_seconds=grace, uid=self._uids.get(name, "")) is None:
            self._end(
                name,
                NodeStatus(name=name, role=status.role, phase=NodePhase.FAILED, message="it had not begun"),
            )
            await self._remove_if_made(name)

    async def nodes(self) -> list[NodeStatus]:
        await self._ready()
        return list(self._statuses.values())

    async def events(self) -> AsyncIterator[NodeStatus]:
        """Ends when the platform is closed; raises if the pods may not be watched."""
        await self._ready()
        news: asyncio.Queue[NodeStatus | None] = asyncio.Queue()
        for status in self._statuses.values():
            news.put_nowait(status)
        self._listeners.add(news)
        try:
            while (told := await news.get()) is not None:
                yield told
        finally:
            self._listeners.discard(news)
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.put_nowait(None)

    # -- addresses -------------------------------------------------------------------------------------------

    async def addresses(self, places: dict[str, int]) -> dict[str, list[str]]:
        """Only where the nodes of a program have to know of each other: a service costs the cluster something."""
        if not any(self._has_address(role) for role in places):
            return {}
        wanted = [(role, place) for role, count in places.items() for place in range(count)]
        found = await asyncio.gather(*(self._place_when_free(role, place) for role, place in wanted))
        result: dict[str, list[str]] = {role: [] for role in places}
        for (role, _), address in zip(wanted, found, strict=True):
            result[role].append(address)
        return result

    def _has_address(self, role: str) -> bool:
        """By the job alone, so that it is the same for every master of it."""
        return self._spec.addressed or (self._spec.program == "definition" and role == "ps")

    async def _place_when_free(self, role: str, place: int) -> str:
        """Raises `UserError` if what has its name does not go."""
        pauses = Pauses(patience=math.inf)
        since: float | None = None
        while True:
            try:
                return await self._place(role, place, index=place)
            except ClusterError as error:
                if error.reason != _TAKEN:
                    raise
                if since is None:
                    since = self._clock()
                    log.warning("%s Waiting for its end.", error.message)
                if self._clock() - since >= GOING_SECONDS:
                    name = naming.place_service_name(self._spec, role, place)
                    raise UserError(
                        f"{error.message} It does not go, and the job cannot begin without its name.",
                        hint=f"`kubectl describe service {name} --namespace={self._cluster.namespace}` shows what "
                        "holds it. When it is gone, the job can be deleted and submitted again.",
                    ) from None
            await pauses.wait()

    async def _place(self, role: str, place: int, *, index: int, errors_borne: int | None = None) -> str:
        """The address of a place, which leads to the node of that number from now on."""
        key = (role, place)
        name = naming.place_service_name(self._spec, role, place)
        if self._in_place.get(key) != index:
            service = await self._pointed(name, role, place, index, errors_borne)
            self._in_place[key] = index
            self._clusterips[key] = _address(service)
        return self._clusterips[key]

    async def _pointed(
        self, name: str, role: str, place: int, index: int, errors_borne: int | None
    ) -> Document:
        """Raises what is waited for if a job that had this name before has a service there: that one goes after its
        record, by itself, and its address with it.
        """
        changes = {"spec": {"selector": place_selector(self._spec, role, index)}}
        through_errors = errors_borne is None
        point = partial(self._cluster.patch, "Service", name, changes, patience=_ATTEMPT_SECONDS)
        service = await self._as_master(point, through_errors=through_errors)
        if service is None:
            new = place_service(self._spec, role, place, index=index, owner=self._owner)
            make = partial(self._cluster.create, new, errors_borne=errors_borne, patience=_ATTEMPT_SECONDS)
            try:
                service = await self._as_master(make, through_errors=through_errors)
            except ClusterError as error:
                if error.reason != _TAKEN:
                    raise
                # Somebody else was faster: a master before this one that is on its way out, or an attempt of ours.
                service = await self._as_master(point, through_errors=through_errors)
                if service is None:
                    raise
        if leaving(service) or not self._is_ours(service):
            because = "being deleted" if leaving(service) else "of a job that had this name before"
            raise ClusterError(f"Service {name} is {because}.", status=409, reason=_TAKEN)
        return service

    # -- pods ------------------------------------------------------------------------------------------------

    async def _create(self, request: NodeRequest) -> bool:
        """False if it cannot be made now, and is to be tried again."""
        try:
            pod = node_pod(self._spec, await self._placed(request), owner=self._owner)
            if request.name in self._stopped:
                return True
            await self._make(pod, request.name)
        except ClusterError as error:
            if _waits(error) or self._bears(error, request.name):
                waits = NodeStatus(
                    name=request.name, role=request.role, phase=NodePhase.PENDING, message=error.message
                )
                self._tell(waits)
                return False
            if error.status == 404:
                # The namespace is being deleted, and the job with it.
                raise
            self._end(
                request.name,
                NodeStatus(
                    name=request.name,
                    role=request.role,
                    phase=NodePhase.FAILED,
                    reason=EndReason.CANNOT_START,
                    message=error.message,
                ),
            )
            return True
        self._made.add(request.name)
        self._taken = True
        self._refused_since.pop(request.name, None)
        await self._remove_if_made(request.name)
        return True

    def _bears(self, error: ClusterError, node: str) -> bool:
        """A right may be missing, or a server be up that knows of none yet: only time tells."""
        if error.status not in MAY_NOT or not self._taken:
            return False
        now = self._clock()
        return now - self._refused_since.setdefault(node, now) < REFUSED_SECONDS

    async def _make(self, pod: Document, node: str) -> None:
        make = partial(self._cluster.create, pod, errors_borne=_ERRORS_BORNE, patience=_ATTEMPT_SECONDS)
        try:
            made = await self._as_master(make)
            self._uids.setdefault(node, uid_of(made))
        except ClusterError as error:
            if error.reason != _TAKEN:
                raise
            there = await self._cluster.get("Pod", pod["metadata"]["name"])
            if there is None or not self._is_ours(there):
                raise
            # Made by the master before this one, or by an attempt of ours that was told to have failed.

    async def _remove_if_made(self, name: str) -> None:
        """A pod that was made while its node was stopped: the deletion came before there was anything to delete."""
        if name in self._made and name in self._ended and name in self._stopped:
            pod = naming.pod_name(self._spec, name)
            await self._delete(pod, grace_seconds=1, uid=self._uids.get(name, ""))

    async def _delete(self, pod: str, *, grace_seconds: int | None, uid: str) -> Document | None:
        delete = partial(
            self._cluster.delete,
            "Pod",
            pod,
            grace_seconds=grace_seconds,
            uid=uid,
            patience=_ATTEMPT_SECONDS,
        )
        return await self._insist(partial(self._as_master, delete, through_errors=True))

    async def _as_master(
        self, change: Callable[[], Awaitable[_Answer]], *, through_errors: bool = False
    ) -> _Answer:
        """A change, attempted until the cluster has answered; an error inside of it is an answer, unless one goes
        `through_errors`. Only as long as this is the job's master: it may have been cut off, and replaced, since the
        attempt before.
        """
        pauses = Pauses(patience=math.inf)
        while True:
            await self._check()
            asks_for: float | None = None
            try:
                return await change()
            except ClusterError as error:
                if not through_errors or error.status != _ERROR:
                    raise
                trouble = error.message
            except ClusterAway as error:
                trouble, asks_for = error.message, error.asks_for
            log.warning("What could not be changed is tried again: %s", trouble)
            await pauses.wait(asks_for)

    async def _check(self) -> None:
        """Raises if there is another master."""
        if self._before_changes is None:
            return
        if self._checking is None or self._checking.done():
            # What it has to say is for those who wait for it.
            self._checking = asyncio.get_running_loop().create_task(_wait_for(self._before_changes()))
            self._tasks.add(self._checking)
            self._checking.add_done_callback(self._tasks.discard)
        await asyncio.shield(self._checking)

    async def _insist(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Again and again if it is refused, for a while: a node that is not stopped would be waited for in vain."""
        pauses, begun = Pauses(patience=math.inf), self._clock()
        while True:
            try:
                return await ask()
            except ClusterError as error:
                if error.status not in MAY_NOT or self._clock() - begun >= REFUSED_SECONDS:
                    raise
                log.warning("Refused, and tried again: %s", error.message)
            await pauses.wait()

    async def _start_in_line(self, request: NodeRequest) -> bool:
        return (
            request.name not in self._statuses or request.name in self._ended or await self._create(request)
        )

    async def _placed(self, request: NodeRequest) -> NodeRequest:
        """With what only this platform knows: how it is believed, and where it is found."""
        number = int(request.name.rpartition("-")[2])
        ours = self._spec.program == "definition" and request.role == "ps"
        environment = {**request.environment, **secret_files(self._spec, serves=ours)}
        if self._has_address(request.role):
            address = await self._place(request.role, request.place, index=number, errors_borne=_ERRORS_BORNE)
            if ours:
                environment |= {
                    "ELASTICDL_BIND": naming.everywhere(self._pod_ip),
                    "ELASTICDL_PORT": str(naming.NODE_PORT),
                    "ELASTICDL_ADVERTISE": address,
                }
        return dataclasses.replace(request, environment=environment)

    async def _ready(self) -> None:
        if self._closed:
            raise UserError("This platform has been closed.")
        if self._watching is None:
            self._watching = self._spawn(self._watch())
            self._spawn(self._line.run())
        if not self._synced.is_set():
            await self._synced.wait()
        if self._failure is not None:
            raise self._failure

    async def _watch(self) -> None:
        labels = {naming.JOB_LABEL: self._spec.job_name, "app": naming.APP}
        made: set[str] = set()
        async for change in watch(self._cluster, "Pod", labels=labels):
            if isinstance(change, Asked):
                made = set(self._made)
            elif isinstance(change, Synced):
                self._synced.set()
                for name in made - self._seen - self._ended.keys():
                    self._miss(name)
            else:
                self._see(change.document, change.gone)

    def _miss(self, name: str) -> None:
        """Its pod was made before all were listed, and is not among them: it came and went while nobody watched."""
        self._uids.pop(name, None)
        self._end(
            name,
            NodeStatus(
                name=name,
                role=name.rpartition("-")[0],
                phase=NodePhase.FAILED,
                reason=EndReason.KILLED,
                message="its pod was deleted before it was seen",
            ),
        )

    def _see(self, pod: Document, gone: bool) -> None:
        name = naming.node_of(pod)
        if not name or name.rpartition("-")[0] == MASTER_ROLE or not self._is_ours(pod):
            return
        self._taken = True
        self._seen.add(name)
        if gone:
            self._uids.pop(name, None)
            self._left_behind.pop(name, None)
        else:
            self._uids[name] = uid_of(pod)
        if name in self._ended:
            self._forget_the_oldest()
            return
        before = self._statuses.get(name)
        left = before is not None and before.phase is NodePhase.LEAVING
        status = node_status(pod, gone=gone, stopped=name in self._stopped, left=left)
        status = self._not_the_programs_fault(with_memory(status, pod, self._spec))
        if before is not None:
            status = with_cause(status, before.message)
        if not gone and on_its_way(pod):
            status = dataclasses.replace(status, message=self._troubles.get(name, ""))
            if name not in self._looking:
                self._looking[name] = self._spawn(self._look_for_troubles(status, pod))
        elif name in self._looking:
            self._looking[name].cancel()
        if status.phase in _ENDED:
            self._end(name, status)
            if outlived(pod) and not gone and not leaving(pod):
                # It would keep its room for ever.
                self._spawn(self._clear_away(name))
            return
        self._tell(status)
        if leaving(pod):
            self._give_up_after(grace_seconds(pod) + self._slack_seconds, name, pod)
        elif unreachable(pod):
            self._give_up_after(self._lost_seconds, name, pod)
        elif name in self._timers:
            self._timers.pop(name).cancel()

    def _not_the_programs_fault(self, status: NodeStatus) -> NodeStatus:
        """Where others of its role have begun, of the same image and with the same command, one that cannot start has
        met a machine that is not in order: another one may do.
        """
        cannot_start = status.reason is EndReason.CANNOT_START
        if status.phase is NodePhase.RUNNING or (status.exit_code is not None and not cannot_start):
            self._begun.add(status.role)
        if not cannot_start or status.role not in self._begun:
            return status
        return dataclasses.replace(
            status, reason=EndReason.KILLED, message=f"its machine cannot start it: {status.message}"
        )

    def _is_ours(self, item: Document) -> bool:
        """Not of a job that had this name before, whose record was deleted, and whose pods and services go after it."""
        owners = owners_of(item)
        return not owners or uid_of(self._owner) in owners

    async def _look_for_troubles(self, status: NodeStatus, pod: Document) -> None:
        async for words in troubles(self._cluster, pod, after=self._look_after_seconds):
            self._troubles[status.name] = words
            self._tell(dataclasses.replace(status, message=words))

    def _give_up_after(self, seconds: float, name: str, pod: Document) -> None:
        """Unless that has been decided before."""
        if name not in self._timers:
            self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._give_up, name, pod)

    def _give_up(self, name: str, pod: Document) -> None:
        if name in self._ended:
            return
        status = lost(pod, stopped=name in self._stopped)
        log.warning("%s has not ended in its time: %s. Its pod is removed.", name, status.message)
        self._spawn(self._remove(pod, status))

    async def _remove(self, pod: Document, status: NodeStatus) -> None:
        metadata = pod["metadata"]
        # First, so that nobody can take it for the one that takes its place.
        await self._delete(metadata["name"], grace_seconds=0, uid=uid_of(pod))
        self._end(status.name, status)

    async def _clear_away(self, name: str) -> None:
        """The pod of a node that has ended, if it is there still."""
        if uid := self._uids.get(name):
            await self._delete(naming.pod_name(self._spec, name), grace_seconds=None, uid=uid)

    def _end(self, name: str, status: NodeStatus) -> None:
        if name in self._stopped:
            status = dataclasses.replace(status, reason=EndReason.STOPPED)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        looking = self._looking.pop(name, None)
        if looking is not None:
            looking.cancel()
        self._troubles.pop(name, None)
        self._refused_since.pop(name, None)
        self._tell(status)
        self._ended[name] = None
        self._forget_the_oldest()
        if status.reason is EndReason.KILLED and name in self._uids:
            self._left_behind[name] = None
            while len(self._left_behind) > PODS_KEPT:
                self._spawn(self._clear_away(self._take_oldest()))

    def _take_oldest(self) -> str:
        name = next(iter(self._left_behind))
        del self._left_behind[name]
        return name

    def _forget_the_oldest(self) -> None:
        """Those without a pod, of which nothing will be heard any more; and only where somebody listens, who has been
        told of them then.
        """
        if not self._listeners:
            return
        for name in [name for name in self._ended if name not in self._uids][:-ENDED_KEPT]:
            del self._ended[name]
            del self._statuses[name]
            self._stopped.discard(name)
            self._made.discard(name)
            self._seen.discard(name)

    def _tell(self, status: NodeStatus) -> None:
        before = self._statuses.get(status.name)
        if before == status or (before is not None and before.phase in _ENDED):
            return
        self._statuses[status.name] = status
        self._announce(status)

    def _announce(self, status: NodeStatus) -> None:
        for listener in self._listeners:
            listener.put_nowait(status)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Nothing can be told any more."""
        self._failure = error
        self._synced.set()
        for listener in self._listeners:
            listener.put_nowait(None)


def _waits(error: ClusterError) -> bool:
    """There is no room now, or the cluster has a fault. Many that are counted at once get into each other's way (409),
    and are to try again; what is of a job that had this name before goes by itself.
    """
    return error.no_room or error.reason in ("Conflict", _TAKEN) or error.status == _ERROR


async def _wait_for(asked: Awaitable[None]) -> None:
    await asked


def _address(service: Document) -> str:
    return naming.address(str(service["spec"]["clusterIP"]), naming.NODE_PORT)
