"""Reads the logs of a job's pods from the cluster: also those of pods created later, until the job ends.

A log is one response of the API server that lasts as long as its container. It ends with the container, though another
one may follow in the same pod; it breaks off when the server restarts, and stalls when the machine is lost. So a reader
remembers its position, by the timestamps that the machine has put before the lines, and continues there as long as the
pod may write more.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import math
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from elasticdl.catalog.job import LogLine
from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.catalog.kubernetes.outage import outlast_outage
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.log_order import own_time
from elasticdl.catalog.observer import JobObserver
from elasticdl.jobs.status import RunState
from elasticdl.platforms.kubernetes.client import (
    Cluster,
    ClusterAway,
    ClusterError,
    Document,
    Pauses,
    TransportError,
)
from elasticdl.platforms.kubernetes.naming import JOB_LABEL, master_name, node_of, record_name
from elasticdl.platforms.platform import MASTER_ROLE

_TIMESTAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d) ?")


@dataclass(frozen=True, kw_only=True)
class StampedLine:
    """A line and its timestamp: seconds and fraction, which both sort as text."""

    text: str
    moment: tuple[str, str] = ("", "")
    zone: str = ""

    @property
    def seconds(self) -> float | None:
        """Since 1970; None without a timestamp."""
        second, part = self.moment
        return own_time(f"{second}.{part}{self.zone}") if second else None

    @classmethod
    def of(cls, line: bytes) -> StampedLine:
        found = _TIMESTAMP.match(line)
        text = line[found.end() if found else 0 :].decode(errors="replace")
        if not found:
            return cls(text=text)
        second, part, zone = (group.decode() if group else "" for group in found.groups())
        return cls(text=text, moment=(second, part.ljust(9, "0")), zone=zone)


class LogPosition:
    """The position up to which a log has been read."""

    def __init__(self) -> None:
        self._moment = ("", "")
        self._zone = ""
        # Lines may have the same timestamp: how many with the last one have been read, ever and in this response.
        self._read = 0
        self._again = 0

    def query(self) -> dict[str, str]:
        """Returns the query of a response that continues from here. It starts at the second, not at the line."""
        self._again = 0
        return {"sinceTime": f"{self._moment[0]}{self._zone}"} if self._moment[0] else {}

    def is_new(self, line: StampedLine) -> bool:
        """Whether the line has not been read before; marks it as read."""
        if not line.moment[0]:
            return True
        if line.moment < self._moment:
            return False
        if line.moment > self._moment:
            self._moment, self._zone, self._read, self._again = line.moment, line.zone, 1, 1
            return True
        self._again += 1
        new = self._again > self._read
        self._read = max(self._read, self._again)
        return new


class PodLogReader:
    """Reads logs with one task per pod, inside one event loop. `emit` receives the lines."""

    def __init__(
        self,
        cluster: Cluster,
        job: str,
        emit: Callable[[LogLine], None],
        *,
        follow: bool,
        tail: int | None,
        since: float | None = None,
        observer: JobObserver,
        timing: Timing,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._emit = emit
        self._follow = follow
        self._tail = tail
        self._since = since
        self._observer = observer
        self._timing = timing
        # When each pod has sent something last, by our own clock.
        self._last_read: dict[str, float] = {}

    async def read(self, node: str) -> None:
        """Reads the log of one node, or of all nodes if none is named."""
        readers: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                state = await self._state()
                for pod in await self._pods():
                    uid, name = str(pod["metadata"]["uid"]), node_name(pod)
                    if uid not in readers and node in ("", name):
                        readers[uid] = asyncio.create_task(self._read_pod(name, pod))
                for reader in readers.values():
                    if reader.done():
                        reader.result()
                if not self._follow or not state.is_active:
                    break
                await asyncio.sleep(self._timing.poll_seconds)
            await self._drain(readers, over=state.is_final)
        finally:
            for reader in readers.values():
                reader.cancel()
            await asyncio.gather(*readers.values(), return_exceptions=True)

    async def _drain(self, readers: dict[str, asyncio.Task[None]], *, over: bool) -> None:
        """Waits for logs that still send something, and cancels those that are silent."""
        since = time.monotonic()
        patience = self._timing.log_drain_seconds if self._follow else self._timing.log_read_seconds
        while left := {uid: reader for uid, reader in readers.items() if not reader.done()}:
            await asyncio.wait(left.values(), timeout=self._timing.poll_seconds)
            for uid, reader in left.items():
                # Workers of a job that has lost its master may go on for as long as they like.
                latest = max(since, self._last_read.get(uid, 0.0)) if over or not self._follow else since
                if time.monotonic() - latest > patience:
                    reader.cancel()
        for reader in readers.values():
            if not reader.cancelled():
                reader.result()

    async def _read_pod(self, node: str, pod: Document) -> None:
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        position = LogPosition()
        pauses = Pauses(patience=math.inf)
        first = True
        while True:
            # Before the log is read: the last lines of a container are not missed.
            ended = not self._follow or await self._has_ended(name, uid)
            try:
                async for line in self._response(pod, position, first=first):
                    first = False
                    if position.is_new(line):
                        self._emit(LogLine(node=node, text=line.text, moment=line.seconds))
                        pauses = Pauses(patience=math.inf)
                if ended:
                    return
            except ClusterError as error:
                if error.status in (401, 403):
                    raise
                if ended:
                    # The log of a pod that is gone by now has usually been read completely.
                    if first:
                        self._observer.note(f"The log of {node} cannot be read: {error.message}")
                    return
            except TransportError as error:
                if not self._follow:
                    self._observer.note(f"The log of {node} cannot be read: {error}")
                    return
            await pauses.wait()

    async def _response(
        self, pod: Document, position: LogPosition, *, first: bool
    ) -> AsyncIterator[StampedLine]:
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        # Others may have put containers beside ours.
        container = node_of(pod).rpartition("-")[0]
        query = {"timestamps": "true", "container": container, **position.query()}
        if self._follow:
            query["follow"] = "true"
        if first and self._tail is not None:
            query["tailLines"] = str(self._tail)
        if first and self._since is not None:
            since = datetime.datetime.fromtimestamp(math.floor(self._since), tz=datetime.timezone.utc)
            query.setdefault("sinceTime", since.strftime("%Y-%m-%dT%H:%M:%SZ"))
        path = f"{self._cluster.path('Pod', name)}/log"
        timeout = None if self._follow else self._timing.log_read_seconds
        rest = b""
        async with self._cluster.stream(path, query, read_seconds=timeout) as answer:
            async for piece in answer.aiter_bytes():
                self._last_read[uid] = time.monotonic()
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield StampedLine.of(line)
        # A line that was cut off comes again, whole; then this is not reached.
        if rest:
            yield StampedLine.of(rest)

    async def _has_ended(self, name: str, uid: str) -> bool:
        """The pod will never write more."""
        try:
            pod = await self._cluster.get("Pod", name)
        except ClusterAway:
            return False
        return (
            pod is None
            or pod["metadata"]["uid"] != uid
            or pod["status"].get("phase") in ("Succeeded", "Failed")
        )

    async def _state(self) -> RunState:
        """The state of the job. A reader that follows it waits for a cluster that does not answer."""

        async def ask() -> RunState:
            document, master = await asyncio.gather(
                self._cluster.get("ConfigMap", record_name(self._job)),
                self._cluster.get("Pod", master_name(self._job)),
            )
            if document is None:
                return RunState.INTERRUPTED
            return ObservedJob(name=self._job, document=document, master=master).state

        return await (outlast_outage(ask, self._observer) if self._follow else ask())

    async def _pods(self) -> tuple[Document, ...]:
        try:
            return await pods_of(self._cluster, self._job)
        except ClusterAway:
            if not self._follow:
                raise
            return ()


async def last_lines(
    cluster: Cluster, pod: str, count: int, *, previous: bool, timeout_seconds: float
) -> tuple[str, ...]:
    """Returns the end of a master's log, as far as it can be read. `previous`: of the container before the current."""
    pieces: list[bytes] = []
    query = {"tailLines": str(count), "container": MASTER_ROLE, **({"previous": "true"} if previous else {})}
    path = f"{cluster.path('Pod', pod)}/log"
    with contextlib.suppress(ClusterError, TransportError):
        async with cluster.stream(path, query, read_seconds=timeout_seconds) as answer:
            async for piece in answer.aiter_bytes():
                pieces.append(piece)
    return tuple(b"".join(pieces).decode(errors="replace").splitlines())


async def pods_of(cluster: Cluster, job: str) -> tuple[Document, ...]:
    return (await cluster.list("Pod", labels={JOB_LABEL: job})).items


def node_name(pod: Document) -> str:
    # There is only one master, so it has no number.
    name = node_of(pod)
    return MASTER_ROLE if name.startswith(f"{MASTER_ROLE}-") else name
