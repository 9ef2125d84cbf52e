"""Jobs from Python, without waiting: `elasticdl.train` returns a `JobHandle`, `elasticdl.jobs` those of all jobs.

A handle holds no state of the job. Every call asks the master, the job folder or the job record, so handles of one job
may be used in several processes at once. All methods block, in a notebook with its running event loop, too; those
whose names end in `_async` do not.

Failure modes
    A job that `train` starts without `detach` runs in a thread of this process and ends with it, interrupted: the
    interpreter waits for it at its exit, a kill does not. `JobHandle.resume` continues it. A job that was deleted
    raises `UserError` in every method.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from elasticdl.catalog.job import Job, JobSummary
from elasticdl.catalog.lookup import JobLookup
from elasticdl.catalog.observer import SILENT, JobObserver
from elasticdl.catalog.result import JobResult
from elasticdl.cli.output.display import Display, make_display
from elasticdl.cli.submission.run import build_spec, remove_former, run_async, stop_running
from elasticdl.errors import ExitCode, UserError
from elasticdl.jobs.flags.flag import JobKind
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.job_store import JobRun, JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus, RunState

if TYPE_CHECKING:
    from elasticdl.catalog.local.runner import LocalRunner

_Result = TypeVar("_Result")


class JobFailed(UserError):
    """Raised by `JobHandle.result` if the job has not succeeded.

    Attributes:
        job_result: How it ended.
    """

    exit_code = ExitCode.JOB_FAILED

    def __init__(self, result: JobResult) -> None:
        super().__init__(f"Job {result.job_name} has {result.state}: {result.message}".rstrip(": "))
        self.job_result = result


class JobHandle:
    """A job, on this machine or on a cluster. Made by `elasticdl.train`, `elasticdl.job` and `elasticdl.jobs`.

    Attributes:
        name: The name of the job.

    Example:
        job = elasticdl.train(model_zoo="zoo", model_def="digits.cnn.custom_model", training_data="data")
        job.scale(num_workers=4)
        print(job.wait().metrics)
    """

    def __init__(self, reference: str, *, namespace: str = "") -> None:
        """`reference`: what `elasticdl jobs status` takes: NAME, or NAME.NUMBER for one run of that name."""
        self.name = JobRun.of_folder(reference).job
        self._reference = reference
        self._namespace = namespace
        # The runner of a job in a thread of this process.
        self._runner: LocalRunner | None = None

    # -- reading ---------------------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        """Returns the newest status of the job: state, progress, loss, evaluations, nodes, audit.

        Returns:
            The status. A job whose master does not answer, since it is about to start or to be restarted, is
            `starting`.

        Raises:
            UserError: The job has been deleted, or its cluster does not answer.

        Example:
            job.status().samples_done
        """
        return run_async(self.status_async)

    async def status_async(self) -> JobStatus:
        """Like `status`, for an event loop."""

        async def read(job: Job) -> JobStatus:
            from elasticdl.catalog.local.master_client import MasterAway

            try:
                return await job.status()
            except MasterAway:
                return JobStatus()

        return self._named(await self._with_job(read))

    def summary(self) -> JobSummary:
        """Returns state, kind, and when the job was started and ended, without asking its master.

        Raises:
            UserError: The job has been deleted.
        """
        return run_async(lambda: self._with_job(lambda job: job.summary()))

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of the newest evaluation. Empty before the first one.

        Raises:
            UserError: The job has been deleted.

        Example:
            job.metrics()["accuracy"]
        """
        newest = self.status().latest_evaluation
        return dict(newest.metrics) if newest is not None else {}

    def logs(self, node: str = "", *, tail: int | None = None) -> list[str]:
        """Returns the lines that the nodes of the job have printed so far.

        Args:
            node: Of this node only, such as "worker-0". Without it, of all, each line with its node's name.
            tail: Only the last so many lines of each node.

        Raises:
            UserError: The job has been deleted, or has no such node.

        Example:
            print(*job.logs("worker-0", tail=20), sep="\\n")
        """

        async def read() -> list[str]:
            return [line async for line in self.logs_async(node, tail=tail, follow=False)]

        return run_async(read)

    async def logs_async(
        self, node: str = "", *, tail: int | None = None, follow: bool = True
    ) -> AsyncIterator[str]:
        """Yields the lines that the nodes of the job print; with `follow`, until the job ends.

        Example:
            async for line in job.logs_async("worker-0"):
                print(line)
        """
        if tail is not None and tail < 0:
            raise UserError(f"logs: tail={tail} is no number of lines.")
        async with self._lookup(SILENT) as lookup:
            job = await lookup.find(self._reference)
            # The log of a node that is about to start can be followed.
            if node and not (follow and await job.is_running()):
                names = await job.log_names()
                if node not in names:
                    raise UserError(
                        f"Job {self.name} has no log of {node!r}.{did_you_mean(node, names)}",
                        hint=f"There are: {', '.join(names) or 'none'}.",
                    )
            async for line in job.logs(node, follow=follow, tail=tail):
                yield line.text if node else f"{line.node}: {line.text}"

    # -- waiting ---------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, *, quiet: bool = True) -> JobResult:
        """Waits until the job ends. Ctrl-C ends the waiting, not the job.

        Args:
            timeout: Wait no longer than so many seconds.
            quiet: False shows the progress of the job meanwhile.

        Returns:
            How the job ended. A job that has failed raises nothing.

        Raises:
            TimeoutError: The job has not ended in time. It goes on.
            UserError: The job has lost the process that ran it, or could not be started.

        Example:
            if not job.wait(timeout=3600).succeeded:
                print(job.logs("master", tail=20))
        """
        return run_async(lambda: self.wait_async(timeout, quiet=quiet))

    async def wait_async(self, timeout: float | None = None, *, quiet: bool = True) -> JobResult:
        """Like `wait`, for an event loop. `await job` is `await job.wait_async()`."""
        if timeout is not None and not timeout >= 0:
            raise UserError(f"wait: timeout={timeout:g} is no number of seconds.")
        try:
            status = await asyncio.wait_for(self._wait(quiet=quiet), timeout)
        except asyncio.TimeoutError:
            # A timeout too short to ask in is none of a job that is over.
            state = (await self._with_job(lambda job: job.summary())).state
            if state is None or state.is_active:
                raise TimeoutError(f"Job {self.name} still runs after {timeout:g} s.") from None
            status = await self._wait(quiet=True)
        return JobResult.of(self._named(status))

    async def _wait(self, *, quiet: bool) -> JobStatus:
        if quiet and self._runner is not None:
            # Raises why the job could not be started.
            return await asyncio.shield(asyncio.wrap_future(self._runner.done))
        display = make_display(quiet=quiet)

        async def wait_for_end(job: Job) -> JobStatus:
            display.started(await job.spec(), f"logs: {job.logs_location}")
            return await job.wait()

        try:
            return await self._with_job(wait_for_end, display)
        finally:
            display.close()

    def __await__(self) -> Generator[Any, None, JobResult]:
        return self.wait_async().__await__()

    def result(self, timeout: float | None = None) -> JobResult:
        """Waits until the job ends, and insists on its success.

        Args:
            timeout: Wait no longer than so many seconds.

        Returns:
            How the job ended: it has succeeded, and its audit is exact.

        Raises:
            JobFailed: The job has failed or was stopped.
            TimeoutError: The job has not ended in time. It goes on.
            UserError: The job has lost the process that ran it, or could not be started.

        Example:
            accuracy = job.result().metrics["accuracy"]
        """
        return run_async(lambda: self.result_async(timeout))

    async def result_async(self, timeout: float | None = None) -> JobResult:
        """Like `result`, for an event loop."""
        result = await self.wait_async(timeout)
        if result.exit_code != ExitCode.SUCCESS:
            raise JobFailed(result)
        return result

    # -- changing --------------------------------------------------------------------------------------------

    def scale(self, *, num_workers: int | None = None, num_ps: int | None = None) -> str:
        """Changes the number of nodes of the running job.

        Args:
            num_workers: How many workers the job shall have.
            num_ps: How many parameter servers the job shall have.

        Returns:
            What the job does about it, in words; empty if it has that size, or its master has not answered yet.

        Raises:
            UserError: The job does not run, or cannot have that size.

        Example:
            job.scale(num_workers=4)
        """
        return run_async(lambda: self.scale_async(num_workers=num_workers, num_ps=num_ps))

    async def scale_async(self, *, num_workers: int | None = None, num_ps: int | None = None) -> str:
        """Like `scale`, for an event loop."""

        async def change(job: Job) -> str:
            await self._check_started(job)
            result = await job.scale(num_workers=num_workers, num_ps=num_ps)
            return result.message if result is not None else ""

        return await self._with_job(change)

    def stop(self, reason: str = "JobHandle.stop") -> JobResult:
        """Saves a checkpoint and ends the running job. `resume` continues it.

        Args:
            reason: For the log of the job.

        Returns:
            How the job ended.

        Raises:
            UserError: The job does not run.
        """
        return run_async(lambda: self.stop_async(reason))

    async def stop_async(self, reason: str = "JobHandle.stop") -> JobResult:
        """Like `stop`, for an event loop."""

        async def stop(job: Job) -> None:
            await self._check_started(job)
            await job.stop(reason)

        await self._with_job(stop)
        return await self.wait_async()

    def resume(self) -> None:
        """Continues the job after it was stopped, has failed or was interrupted: from its newest checkpoint, with its
        flags, under its name. On this machine in a process of its own, which does not end with this one.

        Raises:
            UserError: The job runs, or has succeeded, or there is nothing to continue it from.
        """
        run_async(self.resume_async)

    async def resume_async(self) -> None:
        """Like `resume`, for an event loop."""
        await self._with_job(lambda job: job.resume())
        self._runner = None

    # -- inside ----------------------------------------------------------------------------------------------

    def _lookup(self, observer: JobObserver) -> JobLookup:
        return JobLookup(namespace=self._namespace, observer=observer)

    async def _with_job(
        self, action: Callable[[Job], Awaitable[_Result]], observer: JobObserver = SILENT
    ) -> _Result:
        async with self._lookup(observer) as lookup:
            return await action(await lookup.find(self._reference))

    async def _check_started(self, job: Job) -> None:
        """Waits for the master of a job that is about to start. Raises `UserError` if there will be none."""
        await job.check_running()
        await job.wait_until_started()

    def _named(self, status: JobStatus) -> JobStatus:
        """A run that is not the newest one has the name of the job, too."""
        return dataclasses.replace(status, job=self.name)

    def __repr__(self) -> str:
        where = f", namespace={self._namespace!r}" if self._namespace else ""
        return f"JobHandle({self._reference!r}{where})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The status of the job, as the output of a notebook's cell."""
        from elasticdl.cli.output.notebook import StatusView

        status = self.status()
        return StatusView(status).mime_bundle() if status.has_report else {"text/plain": repr(self)}


def train(
    kind: JobKind = "train", *, quiet: bool = True, detach: bool = False, replace: bool = False, **flags: Any
) -> JobHandle:
    """Starts a job and returns at once. Takes what `elasticdl.run` takes.

    Args:
        kind: "train", "evaluate" or "predict".
        quiet: False shows the progress of the job: in a notebook below the cell, elsewhere as lines.
        detach: Run it in a process of its own, which goes on when this one ends. A job on a cluster always does.
        replace: Stop a running job of the same name first. On a cluster, remove an ended one, too.
        flags: The flags of the command `elasticdl train`, as keyword arguments. `model` may be a function or class, as
            for `elasticdl.run`.

    Returns:
        A handle of the job, which runs.

    Raises:
        UserError: Something is wrong with the job before it starts.

    Example:
        job = elasticdl.train(
            model_zoo="zoo", model_def="digits.cnn.custom_model", training_data="data", num_workers=2
        )
        result = job.wait()
    """
    spec = build_spec(kind, flags)
    display = make_display(quiet=quiet)
    if not spec.runs_here:
        return run_async(lambda: _submit(spec, display, replace=replace))
    if replace:
        stop_running(spec, display)
    store = JobStore()
    if detach:
        from elasticdl.catalog.local import background_host

        return JobHandle(store.exact_name(background_host.submit(spec, store=store)))
    from elasticdl.catalog.local.runner import LocalRunner

    runner = LocalRunner.create(spec, store=store, observer=display)
    runner.start()
    runner.done.add_done_callback(lambda _: display.close())
    handle = JobHandle(store.exact_name(runner.folder))
    handle._runner = runner
    return handle


async def _submit(spec: JobSpec, display: Display, *, replace: bool) -> JobHandle:
    from elasticdl.catalog.kubernetes.catalog import KubernetesCatalog
    from elasticdl.platforms.kubernetes.kubeconfig import current_namespace

    namespace = spec.cluster.namespace or current_namespace()
    async with KubernetesCatalog.connect(namespace=namespace, observer=display) as catalog:
        if replace:
            await remove_former(catalog, spec.job_name, display)
        await catalog.submit(spec)
    return JobHandle(spec.job_name, namespace=namespace)


def job(name: str, *, namespace: str = "") -> JobHandle:
    """Returns the handle of a job that was started elsewhere.

    Args:
        name: The name of the job: on this machine, else on the cluster that kubectl talks to. NAME.NUMBER is an earlier
            run of that name on this machine.
        namespace: Look only on the cluster, in this namespace.

    Raises:
        UserError: There is no such job. The message names the nearest one.

    Example:
        elasticdl.job("nightly").status().state
    """
    if not isinstance(name, str):
        raise UserError(f"job: {name!r} is no name of a job.")
    handle = JobHandle(_exact_name(name, namespace), namespace=namespace)
    handle.summary()
    return handle


def _exact_name(name: str, namespace: str) -> str:
    """Names the present run of a job of this machine, so that a handle does not turn into that of a later run."""
    if namespace:
        return name
    store = JobStore()
    with contextlib.suppress(UserError):
        return store.exact_name(store.get(name))
    return name


def list_jobs(*, state: RunState | str | None = None, namespace: str = "") -> list[JobHandle]:
    """Returns all jobs of this machine and of the cluster's namespace, the oldest first. `elasticdl.jobs` is the same.

    Args:
        state: Only those in this state, such as "running".
        namespace: Only those of this namespace of the cluster.

    Raises:
        UserError: There is no such state; or the cluster does not answer, and a namespace is named. Without one, its
            jobs are left out.

    Example:
        for job in elasticdl.jobs(state="failed"):
            print(job.name, job.summary().message)
    """

    states = [each.value for each in RunState]
    if state is not None and state not in states:
        raise UserError(f"jobs: {state!r} is no state of a job.{did_you_mean(str(state), states)}")

    async def read() -> tuple[JobSummary, ...]:
        async with JobLookup(namespace=namespace) as lookup:
            return (await lookup.list()).jobs

    return [
        JobHandle(_exact_name(summary.job, summary.namespace), namespace=summary.namespace)
        for summary in run_async(read)
        if state is None or summary.state == RunState(state)
    ]
