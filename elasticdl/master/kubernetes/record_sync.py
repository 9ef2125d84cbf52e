"""The job's record on a cluster, kept by its master: what it writes there, and the wishes that it finds there.

It writes when something has changed, at most every two seconds, so that a job is no burden to the cluster however fast
it trains; and every two minutes if nothing has, which tells a master that is quiet from one that is cut off. It watches
this one object, so that nothing is asked while nobody wishes anything.

Failure modes
    The API server refuses a write: the job goes on, the log tells, and it is tried again two seconds later. The last
    word is tried for a while, then in the fewest words, for an object without room. If that fails too, the job has
    ended as it has ended: what cannot be written never becomes its outcome. Another master has the record: this one
    ends, and writes nothing more (`record_writer.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from elasticdl.master.commands.job import StopJob
from elasticdl.master.kubernetes.record_writer import RecordWriter
from elasticdl.master.kubernetes.status_compaction import in_least_room, in_little_room
from elasticdl.master.master import Master
from elasticdl.master.scale_limits import CannotScale, scale
from elasticdl.master.status import job_status
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError
from elasticdl.platforms.kubernetes.manifests import (
    NO_WISHES,
    SIGN_OF_LIFE_SECONDS,
    STATE_KEY,
    STATUS_KEY,
    WISHES_KEY,
)
from elasticdl.platforms.kubernetes.watch import Change, watch

log = logging.getLogger("elasticdl.master")

_STATUS_SECONDS = 2.0
# A snapshot every so many statuses.
_STATE_EVERY = 2
# A refusal that passes (a right taken away and given back, a webhook that is down) does so within minutes.
_LAST_WORD_SECONDS = 120.0
_LAST_WORD_PAUSE_SECONDS = 5.0
# What is wrong with the object itself, as its size, stays wrong.
_TOO_LARGE = (413, 422)


class RecordKeeper:
    """`writer`: has claimed the record."""

    def __init__(self, cluster: Cluster, master: Master, writer: RecordWriter) -> None:
        self._cluster = cluster
        self._master = master
        self._writer = writer
        self._name = naming.record_name(master.spec.job_name)
        self._written: dict[str, str] = {}
        self._written_at = float("-inf")
        self._wishes = NO_WISHES
        # What has become of the last wish, for whoever wrote it and waits.
        self._answer: dict[str, str] = {}

    async def run(self) -> None:
        """Until the record is deleted. Raises `Replaced` if it is another master's."""
        watching = asyncio.create_task(self._watch())
        writing = asyncio.create_task(self._write())
        try:
            await asyncio.wait({watching, writing}, return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, writing):
                if task.done():
                    task.result()
        finally:
            watching.cancel()
            writing.cancel()
            await asyncio.gather(watching, writing, return_exceptions=True)

    async def write(self, *, state: bool = True) -> None:
        """What has changed of the status and, if wanted, of the snapshot; now and then the status all the same."""
        status = {**in_little_room(job_status(self._master)), "wish": self._answer}
        # That time has passed is no change.
        now = status.pop("now")
        compared = {STATUS_KEY: _text(status)}
        found = {STATUS_KEY: f'{{"now":{now!r},{compared[STATUS_KEY][1:]}'}
        if state:
            found[STATE_KEY] = compared[STATE_KEY] = self._master.record()
        changes = {key: text for key, text in found.items() if self._written.get(key) != compared[key]}
        moment = asyncio.get_running_loop().time()
        if not changes and moment - self._written_at >= SIGN_OF_LIFE_SECONDS:
            changes = {STATUS_KEY: found[STATUS_KEY]}
        if changes:
            await self._writer.write(changes)
            self._written |= {key: compared[key] for key in changes}
            self._written_at = moment

    async def finish(self, *, seconds: float = _LAST_WORD_SECONDS) -> bool:
        """The last of the status and of the snapshot. False if it could not be written; raises nothing of that."""
        if await _insist(self.write, seconds=seconds):
            return True
        # Enough to know how the job has ended.
        return await _insist(self._write_least, seconds=0.0)

    async def _write_least(self) -> None:
        status = {**in_least_room(job_status(self._master)), "wish": self._answer}
        # A snapshot that is there is older than this status: of a job that is over nobody needs it.
        changes = {STATUS_KEY: _text(status), **({STATE_KEY: None} if self._master.state.outcome else {})}
        await self._writer.write(changes)

    @staticmethod
    async def last_word(
        writer: RecordWriter, status: dict[str, Any], *, seconds: float = _LAST_WORD_SECONDS
    ) -> bool:
        """Of a master that cannot even begin. False if it could not be written."""
        text = json.dumps({"job": writer.job, "now": time.time(), **status})
        return await _insist(partial(writer.write, {STATUS_KEY: text}), seconds=seconds)

    @staticmethod
    async def tell_of_waiting(writer: RecordWriter, why: str) -> None:
        """Of a master that cannot begin yet: what was said of the job stays, as it may be so still."""
        record = await writer.read()
        said = json.loads(((record or {}).get("data") or {}).get(STATUS_KEY) or "{}")
        text = _text(
            {
                "job": writer.job,
                "state": "starting",
                **said,
                "now": time.time(),
                "phase": "waiting for the journal",
                "message": why,
            }
        )
        await _insist(partial(writer.write, {STATUS_KEY: text}), seconds=0.0)

    async def _write(self) -> None:
        count = 0
        while True:
            try:
                await self.write(state=count % _STATE_EVERY == 0)
            except ClusterError as error:
                # Too large for an object of the cluster, say. The journal has it all.
                log.warning("The job's record could not be written: %s", error)
            count += 1
            await asyncio.sleep(_STATUS_SECONDS)

    async def _watch(self) -> None:
        async for change in watch(self._cluster, "ConfigMap", fields={"metadata.name": self._name}):
            if not isinstance(change, Change):
                continue
            if change.gone:
                return
            self._writer.see(change.document)
            text = str((change.document.get("data") or {}).get(WISHES_KEY) or NO_WISHES)
            if text != self._wishes:
                self._wishes = text
                self._answer = self._obey(text)
                await self._tell()

    async def _tell(self) -> None:
        try:
            await self.write(state=False)
        except ClusterError as error:
            log.warning("The job's record could not be written: %s", error)

    def _obey(self, text: str) -> dict[str, str]:
        """What has been done about it, under the number that the wish has."""
        try:
            wishes = json.loads(text)
            number = str(wishes.get("id", ""))
        except (ValueError, AttributeError) as error:
            log.warning("The wishes in the job's record are no JSON object: %s", error)
            return {}
        try:
            done = self._carry_out(wishes)
        except (CannotScale, TypeError, ValueError) as error:
            log.warning("Cannot scale: %s", error)
            return {"id": number, "problem": str(error)}
        if done:
            log.info("%s.", done.capitalize())
        return {"id": number, "answer": done}

    def _carry_out(self, wishes: dict[str, Any]) -> str:
        state = self._master.state
        workers, servers, stop = (wishes.get(key) for key in ("num_workers", "num_ps", "stop"))
        if stop:
            if not state.stopping and not state.outcome:
                self._master.do(StopJob(reason=str(stop)))
            return f"stopping: {stop}"
        # What has been done already is not done again.
        new_workers = None if workers in (None, state.roster.targets["worker"]) else int(workers)
        new_servers = None if servers in (None, state.roster.targets.get("ps")) else int(servers)
        if new_workers is None and new_servers is None:
            return ""
        return scale(self._master, workers=new_workers, servers=new_servers)


async def _insist(write: Callable[[], Awaitable[None]], *, seconds: float) -> bool:
    """Again and again for so long, unless it is of no use. True if it was written."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            await write()
            return True
        except ClusterError as error:
            log.warning("The job's record could not be written: %s", error)
            late = asyncio.get_running_loop().time() + _LAST_WORD_PAUSE_SECONDS > deadline
            if late or error.status in _TOO_LARGE:
                return False
        await asyncio.sleep(_LAST_WORD_PAUSE_SECONDS)


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
