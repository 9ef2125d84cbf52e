"""Runs jobs and shows them: `elasticdl train`, `evaluate`, `predict`, and `elasticdl.run` from Python.

A local job runs in this process until it ends; Ctrl-C saves a checkpoint and stops it, a second Ctrl-C kills it. With
`detach` it runs in a process of its own, in the background. A job on a cluster is submitted; with `wait` its progress
is shown until it ends, and Ctrl-C ends the display, not the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from elasticdl.catalog.job import Job, StartReport
from elasticdl.catalog.result import JobResult, exit_code
from elasticdl.cli.output.display import Display, make_display
from elasticdl.errors import ExitCode, UserError
from elasticdl.jobs.job_store import JobStore, new_suffix
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus

if TYPE_CHECKING:
    from elasticdl.catalog.kubernetes.catalog import KubernetesCatalog
    from elasticdl.catalog.local.runner import LocalRunner

_Result = TypeVar("_Result")


def run(kind: str = "train", *, quiet: bool = True, replace: bool = False, **flags: Any) -> JobResult:
    """Runs a job from a script or a notebook and waits for its end.

    Args:
        kind: "train", "evaluate" or "predict".
        quiet: Print nothing. False prints what the command `elasticdl train` prints.
        replace: Stop a running job of the same name first.
        flags: The flags of the command, as keyword arguments. `model` may be a function or class of this notebook or
            script in place of model_zoo and model_def, and so may feed, loss, optimizer and the other functions.

    Returns:
        How the job ended. A job that fails raises nothing.

    Raises:
        UserError: Something is wrong with the job before it starts.

    Example:
        result = elasticdl.run(model_zoo="zoo", model_def="digits.cnn.custom_model", training_data="data")
        print(result.succeeded, result.metrics)
    """
    spec = build_spec(kind, flags)
    display = make_display(quiet=quiet)
    if spec.runs_here:
        return JobResult.of(_run_here(spec, display, replace=replace))
    submission = _Submission(spec, display, replace=replace)
    submission.run(wait=True)
    return JobResult.of(submission.last_status())


def build_spec(kind: str, flags: Mapping[str, Any]) -> JobSpec:
    """Builds the specification of a job from Python: flags, with functions and classes in place of names."""
    from elasticdl.jobs.definition_source import ship_objects

    shipped = ship_objects(flags, folder=JobStore().home / "definitions")
    spec = JobSpec.build(kind=kind, name_suffix=new_suffix(), **shipped)
    if "model" in flags and not spec.runs_here:
        raise UserError(
            "model: functions and classes are shipped to workers on this machine; pods have the files of their image.",
            hint="Write it into a model zoo, and give model_zoo and model_def.",
        )
    return spec


def run_local(spec: JobSpec, *, replace: bool = False) -> int:
    """Runs a local job for the command line. Returns the exit code."""
    return exit_code(_run_here(spec, make_display(quiet=False), replace=replace))


def run_detached(spec: JobSpec, *, replace: bool = False) -> int:
    """Starts a local job in the background for the command line. Returns the exit code: 0 if it has started."""
    display = make_display(quiet=False)
    if replace:
        stop_running(spec, display)

    async def start() -> tuple[str, StartReport]:
        from elasticdl.catalog.local.catalog import LocalCatalog

        async with LocalCatalog() as catalog:
            job = await catalog.submit_detached(spec)
            print(f"Job {job.name}: logs and record in {job.folder.path}", flush=True)
            return job.name, await job.wait_until_started()

    name, report = asyncio.run(start())
    if report.has_failed:
        problem = f": {report.problem}" if report.problem else ""
        raise JobNotStarted(
            f"Job {name} has failed{problem}", hint=f"`elasticdl jobs status {name}` shows how it ended."
        )
    print_detached(name)
    return ExitCode.SUCCESS


class JobNotStarted(UserError):
    """A job in the background was over before it was under way."""

    exit_code = ExitCode.JOB_FAILED


def print_detached(name: str) -> None:
    """Says that a job runs in the background, and what can be done with it."""
    print(f"Job {name} runs in the background.")
    for command, what in (("attach", "show it"), ("wait", "wait for its end"), ("stop", "stop it")):
        print(f"  elasticdl jobs {command} {name}  # {what}")


def resume_here(name: str) -> int:
    """Continues a local job that has ended, for the command line. Returns the exit code."""
    from elasticdl.catalog.local.runner import LocalRunner

    display = make_display(quiet=False)
    return exit_code(_run(LocalRunner.resume(name, store=JobStore(), observer=display), display))


def submit(spec: JobSpec, *, wait: bool, replace: bool = False) -> int:
    """Submits a job to its cluster for the command line. Returns the exit code: 0 if the job is under way, or, with
    `wait`, if it has succeeded.
    """
    return _Submission(spec, make_display(quiet=False), replace=replace).run(wait=wait)


def stop_running(spec: JobSpec, display: Display) -> None:
    """Stops the local job of that name, if it runs; not for a new job that could not start."""
    from elasticdl.catalog.local.catalog import LocalCatalog
    from elasticdl.catalog.local.preflight import check_job

    check_job(spec)

    async def stop() -> None:
        async with LocalCatalog() as catalog:
            job = await catalog.find(spec.job_name)
            if job is None or not await job.is_running():
                return
            display.note(f"Stopping job {job.name}, to replace it.")
            # Before that there is no master to ask.
            await job.wait_until_started()
            if await job.is_running():
                await job.stop("replaced by a new run of that name")

    run_async(stop)


async def remove_former(catalog: KubernetesCatalog, name: str, display: Display) -> None:
    """Stops the job of that name, if it runs, and removes it: a cluster has one record for each name."""
    former = await catalog.find(name)
    if former is None:
        return
    if await former.is_running():
        display.note(f"Stopping job {former.name}, to replace it.")
        await former.stop("replaced by a new run of that name")
    await former.delete()


def _run_here(spec: JobSpec, display: Display, *, replace: bool) -> JobStatus:
    from elasticdl.catalog.local.runner import LocalRunner

    if replace:
        stop_running(spec, display)
    return _run(LocalRunner.create(spec, store=JobStore(), observer=display), display)


def _run(runner: LocalRunner, display: Display) -> JobStatus:
    try:
        return runner.run()
    finally:
        display.close()


class _Submission:
    def __init__(self, spec: JobSpec, display: Display, *, replace: bool) -> None:
        self._spec = spec
        self._display = display
        self._replace = replace
        # Known once the job is submitted.
        self._job: Job | None = None

    def run(self, *, wait: bool) -> ExitCode:
        try:
            return run_async(lambda: self._run(wait=wait))
        except KeyboardInterrupt:
            name = self._spec.job_name
            if self._job is None:
                self._display.note(f"Job {name} has not been submitted.")
            else:
                self._display.note(f"Job {name} goes on; `{self._job.command('stop')}` would stop it.")
            return ExitCode.INTERRUPTED
        finally:
            self._display.close()

    def last_status(self) -> JobStatus:
        """Waits for a cluster that does not answer."""

        async def read() -> JobStatus:
            from elasticdl.catalog.kubernetes.outage import outlast_outage

            async with self._catalog() as catalog:
                job = catalog.job(self._spec.job_name)
                return await outlast_outage(job.status, self._display)

        return run_async(read)

    async def _run(self, *, wait: bool) -> ExitCode:
        async with self._catalog() as catalog:
            if self._replace:
                await remove_former(catalog, self._spec.job_name, self._display)
            job = self._job = await catalog.submit(self._spec)
            start = await job.wait_until_started(retry=wait)
            if start.problem:
                self._show_problem(job, start)
            if start.is_crashing or not (wait or start.has_failed):
                under_way = not start.problem or start.is_waiting
                return ExitCode.SUCCESS if under_way else ExitCode.JOB_FAILED
            return exit_code(await job.wait())

    def _catalog(self) -> KubernetesCatalog:
        from elasticdl.catalog.kubernetes.catalog import KubernetesCatalog
        from elasticdl.platforms.kubernetes.kubeconfig import current_namespace

        namespace = self._spec.cluster.namespace or current_namespace()
        return KubernetesCatalog.connect(namespace=namespace, observer=self._display)

    def _show_problem(self, job: Job, start: StartReport) -> None:
        self._display.note(f"The master of job {job.name} has not started: {start.problem}")
        for line in start.log_lines:
            self._display.note(f"master | {line}")
        self._display.note(f"Kubernetes goes on trying; `{job.command('stop')}` gives up.")


def run_async(main: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Runs a coroutine to its end; inside a notebook, which has a running event loop, in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1, thread_name_prefix="elasticdl") as pool:
        return pool.submit(lambda: asyncio.run(main())).result()
