"""The jobs of a cluster's namespace, for the commands that look at jobs or change them.

All that is known of a job is in its record, a ConfigMap that outlives the pods: what the job is (`spec.yaml`), what
its master says of it (`status.json`), what people wish of it (`wishes.json`). So nothing here talks to a master:
whoever may use kubectl in the namespace can look at jobs and change them, from anywhere.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import queue
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from elasticdl.cli.job_view import JobView, LogLine, Summary
from elasticdl.jobs.errors import UserError
from elasticdl.jobs.spec import from_yaml
from elasticdl.master.audit_rows import unrolled
from elasticdl.platforms.cluster import Cluster, ClusterError, Document
from elasticdl.platforms.manifests import JOB_ROLE, SPEC_KEY, STATUS_KEY, WISHES_KEY
from elasticdl.platforms.naming import APP, JOB_LABEL, ROLE_LABEL, master_name, node_of, record_name
from elasticdl.platforms.platform import MASTER_ROLE
from elasticdl.platforms.pods import master_pod

FINAL = ("succeeded", "failed", "stopped")
_POLL_SECONDS = 0.5
# How long a master that runs may take to obey before the command says that it has not yet.
_OBEY_SECONDS = 30.0
_OWNED = ("Pod", "Service", "Secret", "NetworkPolicy")

_Result = TypeVar("_Result")


class ClusterJobs:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def find(self, name: str) -> ClusterJob | None:
        async def look(cluster: Cluster) -> Document | None:
            return await cluster.get("ConfigMap", record_name(name))

        record = self.do(look)
        if record is None or record["metadata"].get("labels", {}).get(ROLE_LABEL) != JOB_ROLE:
            return None
        return ClusterJob(self, name)

    def list(self) -> list[JobView]:
        async def look(cluster: Cluster) -> list[str]:
            records = await cluster.list("ConfigMap", labels={"app": APP, ROLE_LABEL: JOB_ROLE})
            return [str(record["metadata"]["labels"][JOB_LABEL]) for record in records.items]

        return [ClusterJob(self, name) for name in self.do(look)]

    def do(self, action: Callable[[Cluster], Awaitable[_Result]]) -> _Result:
        async def connected() -> _Result:
            async with Cluster.connect(namespace=self.namespace) as cluster:
                return await action(cluster)

        return asyncio.run(connected())


class ClusterJob(JobView):
    def __init__(self, jobs: ClusterJobs, name: str) -> None:
        self.name = name
        self._jobs = jobs

    @property
    def logs_place(self) -> str:
        return f"elasticdl jobs logs {self.name} --namespace={self._jobs.namespace}"

    @property
    def without_logs(self) -> str:
        return "They went with the job's pods, which have been deleted; its record is still there."

    # -- looking ---------------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        record, master = self._look()
        status = status_of(record)
        state = state_of(record, master)
        created = _seconds(record["metadata"]["creationTimestamp"])
        return Summary(
            job=self.name,
            kind=from_yaml(record["data"][SPEC_KEY]).kind,
            state=state,
            created=created,
            ended=status.get("now") if state in FINAL else None,
            message=str(status.get("message", "")),
            place=f"namespace {self._jobs.namespace}",
        )

    def status(self) -> dict[str, Any]:
        record, master = self._look()
        return {"job": self.name, **status_of(record), "state": state_of(record, master)}

    def is_running(self) -> bool:
        return is_running(state_of(*self._look()))

    def log_names(self) -> list[str]:
        return sorted(self._pods())

    def log_lines(self, node: str, *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        lines: queue.Queue[LogLine | None] = queue.Queue()

        async def read(cluster: Cluster) -> None:
            try:
                await _Logs(cluster, self, lines, follow=follow, tail=tail).read(node)
            finally:
                lines.put(None)

        failures: list[BaseException] = []

        def run() -> None:
            try:
                self._jobs.do(read)
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that prints
                failures.append(error)

        thread = threading.Thread(target=run, name="logs", daemon=True)
        thread.start()
        while (line := lines.get()) is not None:
            yield line
        thread.join()
        if failures:
            raise failures[0]

    def _pods(self) -> dict[str, str]:
        """The names of pods by those of the nodes."""

        async def look(cluster: Cluster) -> dict[str, str]:
            return await pods_of(cluster, self.name)

        return self._jobs.do(look)

    def _look(self) -> tuple[Document, Document | None]:
        async def look(cluster: Cluster) -> tuple[Document | None, Document | None]:
            return await asyncio.gather(
                cluster.get("ConfigMap", record_name(self.name)), cluster.get("Pod", master_name(self.name))
            )

        record, master = self._jobs.do(look)
        if record is None:
            raise UserError(f"Job {self.name} has been deleted.")
        return record, master

    # -- changing --------------------------------------------------------------------------------------------

    def scale(self, *, num_workers: int | None, num_ps: int | None) -> str:
        wishes = {"num_workers": num_workers, "num_ps": num_ps}
        answer = self._wish({name: number for name, number in wishes.items() if number is not None})
        return answer or "to the wanted size as soon as its master has seen it"

    def stop(self, reason: str) -> None:
        if self._jobs.do(lambda cluster: self._stop_before_start(cluster, reason)):
            return
        self._wish({"stop": reason})
        while self.is_running():
            time.sleep(_POLL_SECONDS)

    async def _stop_before_start(self, cluster: Cluster, reason: str) -> bool:
        """A master that has never run cannot obey. True if this was one."""
        record, pod = await asyncio.gather(
            cluster.get("ConfigMap", record_name(self.name)), cluster.get("Pod", master_name(self.name))
        )
        if (
            record is None
            or pod is None
            or STATUS_KEY in record["data"]
            or pod["status"]["phase"] != "Pending"
        ):
            return False
        # Not if it has begun to run since: then there is somebody to ask.
        if await cluster.delete("Pod", master_name(self.name), uid=pod["metadata"]["uid"]) is None:
            return False
        status = {"job": self.name, "state": "stopped", "message": f"Stopped before it began: {reason}."}
        text = json.dumps({**status, "now": time.time()})
        await cluster.patch("ConfigMap", record_name(self.name), {"data": {STATUS_KEY: text}})
        return True

    def _wish(self, wish: dict[str, Any]) -> str:
        """Writes it into the record and waits for the master's word on it. Raises what it has against it."""
        number = secrets.token_hex(4)

        async def write(cluster: Cluster) -> None:
            # In place of the last one: that was carried out, or refused, and must not stand in the way of this.
            text = json.dumps({**wish, "id": number})
            await cluster.patch("ConfigMap", record_name(self.name), {"data": {WISHES_KEY: text}})

        self._jobs.do(write)
        deadline = time.monotonic() + _OBEY_SECONDS
        while time.monotonic() < deadline:
            record, master = self._look()
            heard = status_of(record).get("wish") or {}
            if heard.get("id") == number:
                if heard.get("problem"):
                    raise UserError(str(heard["problem"]))
                return str(heard.get("answer", ""))
            if not is_running(state_of(record, master)):
                break
            time.sleep(_POLL_SECONDS)
        return ""

    def resume(self) -> str:
        """Makes the master's pod anew. What it goes on from, it finds in its journal or in the record."""
        record, master = self._look()
        state = state_of(record, master)
        if state in FINAL:
            raise UserError(f"Job {self.name} is over: it has {state}.")
        if is_running(state):
            raise UserError(f"Job {self.name} has a master: it is {state}.")

        async def make(cluster: Cluster) -> None:
            if master is not None:
                await cluster.delete("Pod", master_name(self.name), grace_seconds=0)
                while await cluster.get("Pod", master_name(self.name)) is not None:
                    await asyncio.sleep(_POLL_SECONDS)
            spec = from_yaml(record["data"][SPEC_KEY])
            await cluster.create(master_pod(spec, owner={**record, "kind": "ConfigMap"}))

        self._jobs.do(make)
        return "its master is started again"

    def delete(self) -> None:
        if self.is_running():
            raise UserError(
                f"Job {self.name} is running.",
                hint=f"`elasticdl jobs stop {self.name} --namespace={self._jobs.namespace}` stops it.",
            )

        async def remove(cluster: Cluster) -> None:
            await cluster.delete("ConfigMap", record_name(self.name))
            # What it owned goes by itself, but not at once; and what was made with kubectl has no owner.
            for kind in _OWNED:
                for item in (await cluster.list(kind, labels={JOB_LABEL: self.name})).items:
                    await cluster.delete(kind, item["metadata"]["name"])
            for kind in _OWNED:
                while (await cluster.list(kind, labels={JOB_LABEL: self.name})).items:
                    await asyncio.sleep(_POLL_SECONDS)

        self._jobs.do(remove)


class _Logs:
    """The logs of a job's pods, one reader each, those of later pods too."""

    def __init__(
        self,
        cluster: Cluster,
        job: ClusterJob,
        lines: queue.Queue[LogLine | None],
        *,
        follow: bool,
        tail: int | None,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._lines = lines
        self._follow = follow
        self._tail = tail

    async def read(self, node: str) -> None:
        readers: dict[str, asyncio.Task[None]] = {}
        while True:
            running = await self._running()
            for name, pod in (await pods_of(self._cluster, self._job.name)).items():
                if name not in readers and node in ("", name):
                    readers[name] = asyncio.create_task(self._read_one(name, pod))
            if not self._follow or not running:
                await asyncio.gather(*readers.values())
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _running(self) -> bool:
        record, master = await asyncio.gather(
            self._cluster.get("ConfigMap", record_name(self._job.name)),
            self._cluster.get("Pod", master_name(self._job.name)),
        )
        return record is not None and is_running(state_of(record, master))

    async def _read_one(self, node: str, pod: str) -> None:
        rest = b""
        while True:
            try:
                async for piece in self._cluster.logs(pod, follow=self._follow, tail=self._tail):
                    *whole, rest = (rest + piece).split(b"\n")
                    for line in whole:
                        self._lines.put(LogLine(node=node, text=line.decode(errors="replace")))
                break
            except ClusterError as error:
                # A pod that waits for its node or its image has no log yet.
                if error.status != 400 or not self._follow or not await self._running():
                    break
                await asyncio.sleep(_POLL_SECONDS)
        if rest:
            self._lines.put(LogLine(node=node, text=rest.decode(errors="replace")))


async def pods_of(cluster: Cluster, job: str) -> dict[str, str]:
    """The names of a job's pods by those of its nodes."""
    found = await cluster.list("Pod", labels={JOB_LABEL: job})
    return {_node(pod): str(pod["metadata"]["name"]) for pod in found.items}


def _node(pod: Document) -> str:
    # There is only one, so it has no number.
    name = node_of(pod)
    return MASTER_ROLE if name.startswith(f"{MASTER_ROLE}-") else name


def status_of(record: Document) -> dict[str, Any]:
    """What the master has said of the job last; nothing before its first word."""
    document = json.loads(record.get("data", {}).get(STATUS_KEY) or "{}")
    assert isinstance(document, dict)
    if document.get("audit"):
        document["audit"] = unrolled(document["audit"])
    return document


def state_of(record: Document, master: Document | None) -> str:
    """As the record says; a job that is not over and has no master is interrupted."""
    said = str(status_of(record).get("state") or "starting")
    if said in FINAL:
        return said
    if master is None or "deletionTimestamp" in master["metadata"]:
        return "interrupted"
    return "interrupted" if master["status"].get("phase") in ("Succeeded", "Failed") else said


def is_running(state: str) -> bool:
    return state not in (*FINAL, "interrupted")


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
