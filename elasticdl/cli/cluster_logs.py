"""The logs of a job's pods, read from the cluster: those of pods that come later too, until the job ends.

A log is one answer of the API server, as long as its container runs. It ends when the container does, though another
one may follow in the same pod; it breaks off when the server restarts, and is silent for ever when the machine is lost.
So a reader knows how far it has come, by the moments that the machine has written before the lines, and goes on from
there for as long as the pod may have more to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from elasticdl.cli.cluster_state import FINAL, is_running, state_of
from elasticdl.cli.job_view import LogLine
from elasticdl.cli.removal import Say
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

_POLL_SECONDS = 0.5
# When the job is over, a pod that has said nothing for so long has nothing more to say, or cannot.
_LAST_SECONDS = 10.0
# A log that is not followed comes at once, or its machine does not answer.
_READ_SECONDS = 30.0
_MOMENT = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d) ?")


@dataclass(frozen=True, kw_only=True)
class Stamped:
    """A line and the moment that the machine has written before it; both parts of a moment sort as text."""

    text: str
    moment: tuple[str, str] = ("", "")
    zone: str = ""

    @classmethod
    def of(cls, line: bytes) -> Stamped:
        found = _MOMENT.match(line)
        text = line[found.end() if found else 0 :].decode(errors="replace")
        if not found:
            return cls(text=text)
        second, part, zone = (group.decode() if group else "" for group in found.groups())
        return cls(text=text, moment=(second, part.ljust(9, "0")), zone=zone)


class Place:
    """How far a log has been read."""

    def __init__(self) -> None:
        self._moment = ("", "")
        self._zone = ""
        # Lines may have the same moment: of those with the last one, so many have been read, in this answer or before.
        self._read = 0
        self._again = 0

    def query(self) -> dict[str, str]:
        """What an answer that goes on from here has to be asked for. It begins with the second, not the line."""
        self._again = 0
        return {"sinceTime": f"{self._moment[0]}{self._zone}"} if self._moment[0] else {}

    def is_new(self, line: Stamped) -> bool:
        """Whether it has not been read before; it has, from now on."""
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


class JobLogs:
    """One reader a pod, which puts the lines into a queue. To be used inside one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        job: str,
        lines: queue.Queue[LogLine | None],
        *,
        follow: bool,
        tail: int | None,
        say: Say,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._lines = lines
        self._follow = follow
        self._tail = tail
        self._say = say
        # When something was heard of each pod last, by our own clock.
        self._heard: dict[str, float] = {}

    async def read(self, node: str) -> None:
        """Of one node, or of all."""
        readers: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                state = await self._patiently()
                for pod in await self._pods():
                    uid, name = str(pod["metadata"]["uid"]), node_name(pod)
                    if uid not in readers and node in ("", name):
                        readers[uid] = asyncio.create_task(self._read_one(name, pod))
                for reader in readers.values():
                    if reader.done():
                        reader.result()
                if not self._follow or not is_running(state):
                    break
                await asyncio.sleep(_POLL_SECONDS)
            await self._end(readers, over=state in FINAL)
        finally:
            for reader in readers.values():
                reader.cancel()
            await asyncio.gather(*readers.values(), return_exceptions=True)

    async def _end(self, readers: dict[str, asyncio.Task[None]], *, over: bool) -> None:
        """Whoever still has something to say says it; nobody is waited for who is silent."""
        since = time.monotonic()
        while left := {uid: reader for uid, reader in readers.items() if not reader.done()}:
            await asyncio.wait(left.values(), timeout=_POLL_SECONDS)
            for uid, reader in left.items():
                # Of a job that has lost its master, workers may go on for as long as they like.
                latest = max(since, self._heard.get(uid, 0.0)) if over or not self._follow else since
                patience = _LAST_SECONDS if self._follow else _READ_SECONDS
                if time.monotonic() - latest > patience:
                    reader.cancel()
        for reader in readers.values():
            if not reader.cancelled():
                reader.result()

    async def _read_one(self, node: str, pod: Document) -> None:
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        place = Place()
        pauses = Pauses(patience=math.inf)
        first = True
        while True:
            # Looked at before the log: what a container says last is not missed.
            ended = not self._follow or await self._ended(name, uid)
            try:
                async for line in self._answer(pod, place, first=first):
                    first = False
                    if place.is_new(line):
                        self._lines.put(LogLine(node=node, text=line.text))
                        pauses = Pauses(patience=math.inf)
                if ended:
                    return
            except ClusterError as error:
                if error.status in (401, 403):
                    raise
                if ended:
                    # Of a pod that is gone by now, what there was has been read, as a rule.
                    if first:
                        self._say(f"The log of {node} cannot be read: {error.message}")
                    return
            except TransportError as error:
                if not self._follow:
                    self._say(f"The log of {node} cannot be read: {error}")
                    return
            await pauses.wait()

    async def _answer(self, pod: Document, place: Place, *, first: bool) -> AsyncIterator[Stamped]:
        name, uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        # Others may have put containers of theirs beside ours.
        query = {"timestamps": "true", "container": node_of(pod).rpartition("-")[0], **place.query()}
        if self._follow:
            query["follow"] = "true"
        if first and self._tail is not None:
            query["tailLines"] = str(self._tail)
        path = f"{self._cluster.path('Pod', name)}/log"
        silence = None if self._follow else _READ_SECONDS
        rest = b""
        async with self._cluster.stream(path, query, read_seconds=silence) as answer:
            async for piece in answer.aiter_bytes():
                self._heard[uid] = time.monotonic()
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield Stamped.of(line)
        # Not if it has broken off: then it comes again, whole.
        if rest:
            yield Stamped.of(rest)

    async def _ended(self, name: str, uid: str) -> bool:
        """Whether the pod will never have more to say."""
        try:
            pod = await self._cluster.get("Pod", name)
        except ClusterAway:
            return False
        return (
            pod is None
            or pod["metadata"]["uid"] != uid
            or pod["status"].get("phase") in ("Succeeded", "Failed")
        )

    async def _patiently(self) -> str:
        """The state of the job; who follows it waits for a cluster that does not answer."""
        told = False
        while True:
            try:
                record, master = await asyncio.gather(
                    self._cluster.get("ConfigMap", record_name(self._job)),
                    self._cluster.get("Pod", master_name(self._job)),
                )
                return state_of(record, master) if record is not None else "interrupted"
            except ClusterAway as error:
                if not self._follow:
                    raise
                if not told:
                    told = True
                    self._say(f"{error.message} Waiting for it.")

    async def _pods(self) -> tuple[Document, ...]:
        try:
            return await pods_of(self._cluster, self._job)
        except ClusterAway:
            if not self._follow:
                raise
            return ()


async def last_lines(cluster: Cluster, pod: str, count: int, *, previous: bool) -> tuple[str, ...]:
    """The end of a master's log, as far as it can be had. `previous`: of the container before the one that runs."""
    pieces: list[bytes] = []
    query = {"tailLines": str(count), "container": MASTER_ROLE, **({"previous": "true"} if previous else {})}
    with contextlib.suppress(ClusterError, TransportError):
        async with cluster.stream(
            f"{cluster.path('Pod', pod)}/log", query, read_seconds=_LAST_SECONDS
        ) as answer:
            async for piece in answer.aiter_bytes():
                pieces.append(piece)
    return tuple(b"".join(pieces).decode(errors="replace").splitlines())


async def pods_of(cluster: Cluster, job: str) -> tuple[Document, ...]:
    return (await cluster.list("Pod", labels={JOB_LABEL: job})).items


def node_name(pod: Document) -> str:
    # There is only one, so it has no number.
    name = node_of(pod)
    return MASTER_ROLE if name.startswith(f"{MASTER_ROLE}-") else name
