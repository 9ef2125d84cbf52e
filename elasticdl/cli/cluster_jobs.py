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
import re
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from elasticdl.cli.cluster_logs import JobLogs, node_name, pods_of
from elasticdl.cli.cluster_state import (
    FINAL,
    came_up,
    heard,
    is_running,
    never_began,
    removable,
    state_of,
    status_of,
    trouble_of,
    unheard_wish,
)
from elasticdl.cli.job_view import UNKNOWN, JobView, LogLine, Summary
from elasticdl.cli.output.notes import note
from elasticdl.cli.removal import see_off
from elasticdl.errors import UserError
from elasticdl.jobs.spec import from_yaml
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, Listing, owners_of, uid_of
from elasticdl.platforms.kubernetes.manifests import JOB_ROLE, SPEC_KEY, STATUS_KEY, WISHES_KEY
from elasticdl.platforms.kubernetes.naming import APP, JOB_LABEL, ROLE_LABEL, master_name, record_name
from elasticdl.platforms.kubernetes.pods.manifest import master_pod
from elasticdl.platforms.platform import MASTER_ROLE

_POLL_SECONDS = 0.5
# How long a master that runs may take to obey before the command says that it has not yet.
_OBEY_SECONDS = 30.0
# The master writes into the record every two seconds at most, so it takes two at most.
_WRITE_ATTEMPTS = 10
# How long a person waits for an answer of the cluster.
_PATIENCE_SECONDS = 15.0
# As a record is written.
_KIND = re.compile(r"^kind: (\w+)$", re.MULTILINE)
_SIZES = ("num_workers", "num_ps")
# What a job is made of besides its record.
OWNED = ("Pod", "Service", "Secret", "NetworkPolicy")

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

    def summaries(self) -> list[Summary]:
        """Of all jobs there, by two requests."""

        async def look(cluster: Cluster) -> tuple[Listing, Listing]:
            return await asyncio.gather(
                cluster.list("ConfigMap", labels={"app": APP, ROLE_LABEL: JOB_ROLE}),
                cluster.list("Pod", labels={"app": APP, ROLE_LABEL: MASTER_ROLE}),
            )

        records, masters = self.do(look)
        pods = {pod["metadata"]["name"]: pod for pod in masters.items}
        named = [(str(record["metadata"]["labels"][JOB_LABEL]), record) for record in records.items]
        return [_summary(name, record, pods.get(master_name(name)), self.namespace) for name, record in named]

    def do(self, action: Callable[[Cluster], Awaitable[_Result]]) -> _Result:
        async def connected() -> _Result:
            async with Cluster.connect(namespace=self.namespace, patience=_PATIENCE_SECONDS) as cluster:
                return await action(cluster)

        return asyncio.run(connected())


class ClusterJob(JobView):
    def __init__(self, jobs: ClusterJobs, name: str) -> None:
        self.name = name
        self._jobs = jobs

    @property
    def logs_place(self) -> str:
        return self.command("logs")

    @property
    def without_logs(self) -> str:
        return "They went with the job's pods, which have been deleted; its record is still there."

    @property
    def without_master(self) -> str:
        return f"`{self.command('resume')}` brings it back; `{self.command('delete')}` removes the job."

    # -- looking ---------------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        return _summary(self.name, *self._look(), self._jobs.namespace)

    def status(self) -> dict[str, Any]:
        return self._jobs.do(self.current)

    async def current(self, cluster: Cluster) -> dict[str, Any]:
        record, master = await self.documents(cluster)
        document = {"job": self.name, **status_of(record), "state": state_of(record, master)}
        trouble = trouble_of(record, master, cluster.now)
        return {**document, "trouble": f"The master: {trouble}."} if trouble else document

    def is_running(self) -> bool:
        return is_running(state_of(*self._look()))

    def log_names(self) -> list[str]:
        return sorted(self._pods())

    def log_lines(self, node: str, *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        lines: queue.Queue[LogLine | None] = queue.Queue()

        async def read(cluster: Cluster) -> None:
            await JobLogs(cluster, self.name, lines, follow=follow, tail=tail, say=note).read(node)

        failures: list[BaseException] = []

        def run() -> None:
            try:
                self._jobs.do(read)
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that prints
                failures.append(error)
            finally:
                lines.put(None)

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
            return {node_name(pod): pod["metadata"]["name"] for pod in await pods_of(cluster, self.name)}

        return self._jobs.do(look)

    def _look(self) -> tuple[Document, Document | None]:
        return self._jobs.do(self.documents)

    async def documents(self, cluster: Cluster) -> tuple[Document, Document | None]:
        """The record and the master's pod, of which there may be none."""
        record, master = await asyncio.gather(
            cluster.get("ConfigMap", record_name(self.name)), cluster.get("Pod", master_name(self.name))
        )
        if record is None:
            raise UserError(f"Job {self.name} has been deleted.")
        return record, master

    async def _documents_now(self, cluster: Cluster) -> tuple[Document, Document | None, float | None]:
        """And when that was, by the cluster's clock."""
        record, master = await self.documents(cluster)
        return record, master, cluster.now

    # -- changing --------------------------------------------------------------------------------------------

    def scale(self, *, num_workers: int | None, num_ps: int | None) -> str:
        wishes = {"num_workers": num_workers, "num_ps": num_ps}
        wish = {name: number for name, number in wishes.items() if number is not None}
        answer = self._jobs.do(lambda cluster: self._scale(cluster, wish))
        return answer or "to the wanted size as soon as its master has seen it"

    async def _scale(self, cluster: Cluster, wish: dict[str, Any]) -> str:
        """The master's word on it. Raises what it has against it."""
        number = await self._wish(cluster, wish)
        deadline = time.monotonic() + _OBEY_SECONDS
        while time.monotonic() < deadline:
            record, master = await self.documents(cluster)
            if heard(record, number):
                return _answer(record)
            if not is_running(state_of(record, master)):
                break
            await asyncio.sleep(_POLL_SECONDS)
        return ""

    def stop(self, reason: str) -> None:
        self._jobs.do(lambda cluster: self._stop(cluster, reason))

    async def _stop(self, cluster: Cluster, reason: str) -> None:
        number = told = ""
        obeyed = False
        deadline = time.monotonic() + _OBEY_SECONDS
        while True:
            record, master = await self.documents(cluster)
            state, trouble = state_of(record, master), trouble_of(record, master, cluster.now)
            if state in FINAL:
                return
            if not is_running(state):
                raise UserError(
                    f"The master of job {self.name} is lost: {trouble}.", hint=self.without_master
                )
            if master is not None and never_began(record, master):
                if await self._stop_before_start(cluster, master, reason):
                    continue
            elif not number:
                number = await self._wish(cluster, {"stop": reason})
            # One that comes back says so once more, but only then.
            obeyed = obeyed or (bool(number) and heard(record, number))
            late = time.monotonic() > deadline
            if late and not obeyed:
                raise self._unheard(trouble)
            words = trouble or ("it saves what it has, which takes its time" if late else "")
            if words and words != told:
                told = words
                note(f"Waiting for the master of job {self.name}: {words}.")
            await asyncio.sleep(_POLL_SECONDS)

    def _unheard(self, trouble: str) -> UserError:
        because = f": {trouble}" if trouble else ""
        way_out = f"`{self.command('delete')}` removes it." if trouble else ""
        return UserError(
            f"The master of job {self.name} has not answered for {_OBEY_SECONDS:.0f} s{because}.",
            hint=f"It stops the job as soon as it can. {way_out}".rstrip(),
        )

    async def _stop_before_start(self, cluster: Cluster, master: Document, reason: str) -> bool:
        """A master that has never come up cannot obey. True if it is gone; then the job is over, unless it has come up
        in its last moment.
        """
        metadata = master["metadata"]
        # Not if it has begun to run since: then there is somebody to ask.
        deleted = await cluster.delete(
            "Pod", metadata["name"], uid=metadata["uid"], version=metadata["resourceVersion"]
        )
        if deleted is None:
            return False
        await self._see_off_master(cluster, master)
        record, _ = await self.documents(cluster)
        if not came_up(record):
            status = {"job": self.name, "state": "stopped", "message": f"Stopped before it began: {reason}."}
            text = json.dumps({**status, "now": time.time()})
            await cluster.patch("ConfigMap", record_name(self.name), {"data": {STATUS_KEY: text}})
        return True

    async def _wish(self, cluster: Cluster, wish: dict[str, Any]) -> str:
        """Writes it into the record. Returns the number under which it is answered."""
        number = secrets.token_hex(4)
        for _ in range(_WRITE_ATTEMPTS):
            record, _ = await self.documents(cluster)
            before = unheard_wish(record)
            if before.get("stop") and "stop" not in wish:
                raise UserError(
                    f"Job {self.name} is to be stopped ({before['stop']}), which its master has not seen yet.",
                    hint=f"`{self.command('status')}` shows how it does.",
                )
            # One that was carried out, or refused, must not stand in the way of this; one that nobody has seen stays.
            kept = {} if "stop" in wish else {key: before[key] for key in _SIZES if key in before}
            changes = {
                "metadata": {"resourceVersion": record["metadata"]["resourceVersion"]},
                "data": {WISHES_KEY: json.dumps({**kept, **wish, "id": number})},
            }
            try:
                await cluster.patch("ConfigMap", record_name(self.name), changes)
                return number
            except ClusterError as error:
                # Somebody else has written there meanwhile, the master as a rule.
                if error.status != 409:
                    raise
        raise UserError(f"The record of job {self.name} changes faster than it can be written. Try again.")

    def resume(self) -> str:
        """Makes the master's pod anew. What it goes on from, it finds in its journal or in the record."""
        record, master, now = self._jobs.do(self._documents_now)
        state, trouble = state_of(record, master), trouble_of(record, master, now)
        if state in FINAL:
            raise UserError(f"Job {self.name} is over: it has {state}.")
        if is_running(state):
            because = f", but {trouble}" if trouble else ""
            raise UserError(f"Job {self.name} has a master: it is {state}{because}.")

        async def make(cluster: Cluster) -> None:
            if master is not None:
                metadata = master["metadata"]
                await cluster.delete("Pod", metadata["name"], grace_seconds=0, uid=metadata["uid"])
                await self._see_off_master(cluster, master)
            spec = from_yaml(record["data"][SPEC_KEY])
            try:
                await cluster.create(master_pod(spec, owner={**record, "kind": "ConfigMap"}))
            except ClusterError as error:
                if error.reason != "AlreadyExists":
                    raise
                raise UserError(
                    f"Job {self.name} has a master: somebody else has started it meanwhile."
                ) from None

        self._jobs.do(make)
        return "its master is started again"

    async def _see_off_master(self, cluster: Cluster, master: Document) -> None:
        """This very pod: another one of its name is the master that somebody else has started."""
        labels, uid = {JOB_LABEL: self.name, ROLE_LABEL: MASTER_ROLE}, uid_of(master)
        await see_off(cluster, labels, those=lambda pod: uid_of(pod) == uid, say=note)

    def delete(self) -> None:
        record, master, now = self._jobs.do(self._documents_now)
        if not removable(record, master, now):
            raise UserError(f"Job {self.name} is running.", hint=f"`{self.command('stop')}` stops it.")
        self._jobs.do(lambda cluster: self._remove(cluster, uid_of(record)))

    async def _remove(self, cluster: Cluster, uid: str) -> None:
        """`uid`: of the job's record. What another job is made of, which may have got the name meanwhile, stays."""
        labels = {JOB_LABEL: self.name}
        found = [(kind, item) for kind in OWNED for item in (await cluster.list(kind, labels=labels)).items]
        await cluster.delete("ConfigMap", record_name(self.name), uid=uid)
        # What was made with kubectl has no owner: it was there before, and is the next job's as soon as there is one.
        there = await cluster.get("ConfigMap", record_name(self.name))
        taken = there is not None and uid_of(there) != uid
        unowned = {uid_of(item) for _, item in found if not owners_of(item) and not taken}

        def those(item: Document) -> bool:
            return uid in owners_of(item) or uid_of(item) in unowned

        # What the record owned goes by itself, but not at once.
        for kind, item in found:
            if those(item):
                await cluster.delete(kind, item["metadata"]["name"], uid=uid_of(item))
        await see_off(cluster, labels, those=those, say=note)
        await self._without(cluster, labels, those)

    async def _without(
        self, cluster: Cluster, labels: dict[str, str], those: Callable[[Document], bool]
    ) -> None:
        """Until all the rest is gone, too."""
        deadline = time.monotonic() + _OBEY_SECONDS
        for kind in OWNED:
            while left := [item for item in (await cluster.list(kind, labels=labels)).items if those(item)]:
                if time.monotonic() > deadline:
                    names = ", ".join(item["metadata"]["name"] for item in left)
                    raise UserError(f"Of job {self.name} this does not go: {kind} {names}.")
                await asyncio.sleep(_POLL_SECONDS)

    def command(self, name: str) -> str:
        return f"elasticdl jobs {name} {self.name} --namespace={self._jobs.namespace}"


def _summary(name: str, record: Document, master: Document | None, namespace: str) -> Summary:
    kind, state, ended, problem = _kind(record), UNKNOWN, None, ""
    try:
        status = status_of(record)
    except (ValueError, AssertionError) as error:
        problem = f"What its master says of it ({STATUS_KEY} of its record) cannot be read: {error}."
    else:
        state, problem = state_of(record, master), str(status.get("message", ""))
        ended = status.get("now") if state in FINAL else None
    return Summary(
        job=name,
        kind=kind,
        state=state,
        created=_seconds(record["metadata"]["creationTimestamp"]),
        ended=ended,
        message=problem,
        place=f"namespace {namespace}",
    )


def _kind(record: Document) -> str:
    """The job of a newer version may have flags that are not known here: no reason not to list it."""
    found = _KIND.search(str((record.get("data") or {}).get(SPEC_KEY, "")))
    return found[1] if found else UNKNOWN


def _answer(record: Document) -> str:
    """What the master says to the last wish. Raises what it has against it."""
    wish = status_of(record)["wish"]
    if wish.get("problem"):
        raise UserError(str(wish["problem"]))
    return str(wish.get("answer", ""))


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
