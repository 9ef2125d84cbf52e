"""The handle of a job on a cluster.

All that is known of a job is in its job record, a ConfigMap that outlives the pods: the JobSpec, the status that the
master reports, and the desired state. Nothing here talks to a master, so a user of kubectl in the namespace can
read and change jobs, from anywhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from elasticdl.catalog.job import Job, JobSummary, LogLine, NodeUsage, StartReport
from elasticdl.catalog.kubernetes.desired_writer import write_desired
from elasticdl.catalog.kubernetes.job_removal import remove_job
from elasticdl.catalog.kubernetes.master_start import watch_start
from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.catalog.kubernetes.outage import outlast_outage
from elasticdl.catalog.kubernetes.pod_logs import PodLogReader, node_name, pods_of
from elasticdl.catalog.kubernetes.pod_removal import await_deletion
from elasticdl.catalog.kubernetes.pod_usage import pod_usage
from elasticdl.catalog.kubernetes.summary import summarize
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.kubernetes.training_job import (
    find_training_job,
    is_managed,
    is_waiting,
    pin_size,
    waiting_reason,
)
from elasticdl.catalog.log_order import lines_since, place
from elasticdl.catalog.observer import JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.job_record import status_entry
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import DesiredResult, JobStatus, RunState
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, uid_of
from elasticdl.platforms.kubernetes.naming import JOB_LABEL, ROLE_LABEL, master_name, record_name
from elasticdl.platforms.kubernetes.pods.manifest import master_pod
from elasticdl.platforms.kubernetes.pods.status import last_end, unreachable
from elasticdl.platforms.platform import MASTER_ROLE

_WORKER_ROLE, _PS_ROLE = "worker", "ps"


class KubernetesJob(Job):
    def __init__(self, cluster: Cluster, name: str, *, observer: JobObserver, timing: Timing) -> None:
        self.name = name
        self._cluster = cluster
        self._observer = observer
        self._timing = timing

    @property
    def namespace(self) -> str:
        return self._cluster.namespace

    @property
    def location(self) -> str:
        return f"namespace {self._cluster.namespace}"

    @property
    def logs_location(self) -> str:
        return self.command("logs")

    @property
    def missing_logs_hint(self) -> str:
        return "They went with the job's pods, which have been deleted; its record is still there."

    @property
    def recovery_hint(self) -> str:
        return f"`{self.command('resume')}` brings it back; `{self.command('delete')}` removes the job."

    def command(self, name: str) -> str:
        return f"elasticdl jobs {name} {self.name} --namespace={self._cluster.namespace}"

    # -- reading ---------------------------------------------------------------------------------------------

    async def observe(self) -> ObservedJob:
        """Reads the job record and the pod of the master. Raises `UserError` if the job has been deleted."""
        document, master = await asyncio.gather(
            self._cluster.get("ConfigMap", record_name(self.name)),
            self._cluster.get("Pod", master_name(self.name)),
        )
        if document is None:
            found = await find_training_job(self._cluster, self.name, record=None)
            if found is None:
                raise UserError(f"Job {self.name} has been deleted.")
            raise UserError(
                f"Job {self.name} has not started: {waiting_reason(found[1])}.",
                hint=f"`kubectl describe tj {self.name} --namespace={self._cluster.namespace}` shows more.",
            )
        return ObservedJob(name=self.name, document=document, master=master, now=self._cluster.now)

    async def spec(self) -> JobSpec:
        return (await self.observe()).record.spec()

    async def summary(self) -> JobSummary:
        return summarize(await self.observe(), location=self.location)

    async def status(self) -> JobStatus:
        return (await self.observe()).status

    async def is_running(self) -> bool:
        return (await self.observe()).state.is_active

    async def log_names(self) -> tuple[str, ...]:
        return tuple(sorted(node_name(pod) for pod in await pods_of(self._cluster, self.name)))

    async def usage(self) -> Mapping[str, NodeUsage]:
        return await pod_usage(self._cluster, self.name)

    async def logs(
        self, node: str = "", *, follow: bool = False, tail: int | None = None, since: float | None = None
    ) -> AsyncIterator[LogLine]:
        """Followed logs are merged by time as far as their lines arrive together, finished ones altogether."""
        lines: asyncio.Queue[LogLine | None] = asyncio.Queue()
        reader = PodLogReader(
            self._cluster,
            self.name,
            lines.put_nowait,
            follow=follow,
            tail=tail,
            since=since,
            observer=self._observer,
            timing=self._timing,
        )

        async def read() -> None:
            try:
                await reader.read(node)
            finally:
                lines.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            is_over = False
            while not is_over:
                if not follow:
                    await asyncio.wait([reading])
                found = [await lines.get()]
                if follow:
                    # The logs of other pods are on their way.
                    await asyncio.sleep(self._timing.poll_seconds)
                while not lines.empty():
                    found.append(lines.get_nowait())
                is_over = found[-1] is None
                arrived = sorted((line for line in found if line is not None), key=place)
                for line in lines_since(arrived, since):
                    yield line
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def wait_until_started(self, *, retry: bool = False) -> StartReport:
        async def watch() -> StartReport:
            waiting = await self._await_controller()
            return waiting or await watch_start(self._cluster, self.name, self._timing)

        return await (outlast_outage(watch, self._observer) if retry else watch())

    async def _await_controller(self) -> StartReport | None:
        """Waits until the controller has started the master of a TrainingJob. Returns why it has not, or None."""
        deadline = time.monotonic() + self._timing.start_timeout_seconds
        while True:
            record, master = await asyncio.gather(
                self._cluster.get("ConfigMap", record_name(self.name)),
                self._cluster.get("Pod", master_name(self.name)),
            )
            if record is not None and (master is not None or not is_managed(record)):
                return None
            found = await find_training_job(self._cluster, self.name, record=record)
            if found is None:
                return None
            is_late = time.monotonic() > deadline
            if is_waiting(found[1]) or is_late:
                return StartReport(problem=f"{waiting_reason(found[1])}.".replace("..", "."), is_waiting=True)
            await asyncio.sleep(self._timing.start_poll_seconds)

    async def _await_record(self) -> None:
        """Waits, for as long as it takes, until the controller has given a TrainingJob its record."""
        while await self._cluster.get("ConfigMap", record_name(self.name)) is None:
            if await find_training_job(self._cluster, self.name, record=None) is None:
                return
            await asyncio.sleep(self._timing.status_poll_seconds)

    async def wait(self) -> JobStatus:
        noted = ""
        await outlast_outage(self._await_record, self._observer)
        while True:
            job = await outlast_outage(self.observe, self._observer)
            state = job.state
            if state.is_final:
                self._observer.ended(job.status, self.logs_location)
                return job.status
            trouble = job.trouble
            if trouble and trouble != noted:
                self._observer.note(f"The master of job {self.name}: {trouble}.")
            noted = trouble
            if job.master and last_end(job.master) and job.never_started:
                raise UserError(
                    f"The master of job {self.name} has not started: {trouble}.",
                    hint=f"Kubernetes goes on trying; `{self.command('stop')}` gives up.",
                )
            # An unreachable machine may come back; if not, Kubernetes deletes its pods after some minutes.
            is_coming_back = is_managed(job.document) or (job.master and unreachable(job.master))
            if state is RunState.INTERRUPTED and not is_coming_back:
                raise UserError(f"The master of job {self.name} is gone.", hint=self.recovery_hint)
            if job.reported.has_report:
                self._observer.progressed(job.status)
            await asyncio.sleep(self._timing.status_poll_seconds)

    # -- changing --------------------------------------------------------------------------------------------

    async def write_desired(self, change: Callable[[Desired], Desired]) -> int:
        """Writes the desired state and returns its generation, without waiting for the master. `change`: from what the
        master has not seen yet.
        """
        return await write_desired(self._cluster, self.name, self.observe, change)

    async def scale(
        self,
        *,
        num_workers: int | None = None,
        num_ps: int | None = None,
        victims: Sequence[str] = (),
    ) -> DesiredResult | None:
        sizes = {_WORKER_ROLE: num_workers, _PS_ROLE: num_ps}
        nodes = {role: count for role, count in sizes.items() if count is not None}
        before = await self.observe()
        if is_managed(before.document):
            generation = await self._pin(before, nodes)
        else:
            generation = await self.write_desired(lambda desired: desired.with_nodes(nodes, victims=victims))
        deadline = time.monotonic() + self._timing.answer_timeout_seconds
        while time.monotonic() < deadline:
            job = await self.observe()
            if job.record.has_observed(generation):
                result = job.reported.desired_result
                if result.error:
                    raise UserError(result.error)
                return result
            if not job.state.is_active:
                break
            await asyncio.sleep(self._timing.poll_seconds)
        return None

    async def _pin(self, before: ObservedJob, nodes: Mapping[str, int]) -> int:
        """Pins the size of a TrainingJob. Returns the generation that the controller writes for it."""
        count = nodes.get(_WORKER_ROLE)
        if count is None or _PS_ROLE in nodes:
            raise UserError(
                f"Job {self.name} is a TrainingJob: its parameter servers follow the number of its workers.",
                hint="Choose --num_workers alone.",
            )
        found = await find_training_job(self._cluster, self.name, record=before.document)
        if found is None:
            raise UserError(f"Job {self.name} has been deleted.")
        await pin_size(self._cluster, *found, count)
        desired = before.record.desired()
        return desired.generation + (desired.nodes.get(_WORKER_ROLE) != count)

    async def stop(self, reason: str) -> None:
        generation: int | None = None
        observed = False
        noted = ""
        deadline = time.monotonic() + self._timing.answer_timeout_seconds
        while True:
            job = await self.observe()
            state, trouble = job.state, job.trouble
            if state.is_final:
                return
            if not state.is_active:
                raise UserError(f"The master of job {self.name} is lost: {trouble}.", hint=self.recovery_hint)
            if job.master is not None and job.never_started:
                if await self._stop_before_start(job.master, reason):
                    continue
            elif generation is None:
                generation = await self.write_desired(lambda desired: desired.with_stop(reason))
            # A restarted master reports an older generation until it has acted again: once is enough.
            observed = observed or (generation is not None and job.record.has_observed(generation))
            late = time.monotonic() > deadline
            if late and not observed:
                raise self._no_answer(trouble)
            words = trouble or ("it saves what it has, which takes its time" if late else "")
            if words and words != noted:
                noted = words
                self._observer.note(f"Waiting for the master of job {self.name}: {words}.")
            await asyncio.sleep(self._timing.poll_seconds)

    async def resume(self) -> None:
        """Creates the pod of the master again. The master recovers from its journal, or from the job record."""
        job = await self.observe()
        if job.state.is_final:
            raise UserError(f"Job {self.name} is over: it has {job.state}.")
        if job.state.is_active:
            because = f", but {job.trouble}" if job.trouble else ""
            raise UserError(f"Job {self.name} has a master: it is {job.state}{because}.")
        if job.master is not None:
            await self._cluster.delete(
                "Pod", job.master["metadata"]["name"], grace_seconds=0, uid=uid_of(job.master)
            )
            await self._await_end_of(job.master)
        try:
            pod = master_pod(job.record.spec(), owner={**job.document, "kind": "ConfigMap"})
            await self._cluster.create(pod)
        except ClusterError as error:
            if error.reason != "AlreadyExists":
                raise
            raise UserError(f"Job {self.name} has a master: another user has started it meanwhile.") from None

    async def delete(self) -> None:
        record = await self._cluster.get("ConfigMap", record_name(self.name))
        found = await find_training_job(self._cluster, self.name, record=record)
        if record is None and found is not None:
            await self._cluster.delete(found[0], self.name, uid=uid_of(found[1]))
            return
        job = await self.observe()
        if not job.is_removable:
            raise UserError(f"Job {self.name} is running.", hint=f"`{self.command('stop')}` stops it.")
        if found is not None:
            # First, for the controller would make the record again.
            await self._cluster.delete(found[0], self.name, uid=uid_of(found[1]))
        await remove_job(
            self._cluster,
            self.name,
            record_uid=uid_of(job.document),
            observer=self._observer,
            timing=self._timing,
        )

    def _no_answer(self, trouble: str) -> UserError:
        seconds = self._timing.answer_timeout_seconds
        because = f": {trouble}" if trouble else ""
        way_out = f"`{self.command('delete')}` removes it." if trouble else ""
        return UserError(
            f"The master of job {self.name} has not answered for {seconds:.0f} s{because}.",
            hint=f"It stops the job as soon as it can. {way_out}".rstrip(),
        )

    async def _stop_before_start(self, master: Document, reason: str) -> bool:
        """Stops a job whose master has never started, and so cannot act on a desired state. True if its pod is gone;
        then the job is over, unless the master has started in the last moment.
        """
        metadata = master["metadata"]
        # Fails if the pod has changed, and may run by now: then there is a master to ask.
        deleted = await self._cluster.delete(
            "Pod", metadata["name"], uid=metadata["uid"], version=metadata["resourceVersion"]
        )
        if deleted is None:
            return False
        await self._await_end_of(master)
        if not (await self.observe()).has_started:
            message = f"Stopped before it began: {reason}."
            status = JobStatus(job=self.name, state=RunState.STOPPED, message=message, now=time.time())
            await self._cluster.patch("ConfigMap", record_name(self.name), {"data": status_entry(status)})
        return True

    async def _await_end_of(self, master: Document) -> None:
        """Waits for the end of this pod; another pod of its name is a master that another user has started."""
        labels, uid = {JOB_LABEL: self.name, ROLE_LABEL: MASTER_ROLE}, uid_of(master)
        await await_deletion(
            self._cluster,
            labels,
            those=lambda pod: uid_of(pod) == uid,
            observer=self._observer,
            timing=self._timing,
        )
