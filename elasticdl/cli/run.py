"""Runs jobs and shows them: `elasticdl train`, `evaluate`, `predict`, and `elasticdl.run` from Python.

A local job runs in this process until it ends; Ctrl-C saves a checkpoint and stops it, a second Ctrl-C kills it. A
job on a cluster is submitted; with `wait` it is shown until it ends, and Ctrl-C ends the showing, not the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
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

_Result = TypeVar("_Result")


def run(kind: str = "train", *, quiet: bool = True, **flags: Any) -> JobResult:
    """Runs a job from a script or a notebook and waits for its end.

    Args:
        kind: "train", "evaluate" or "predict".
        quiet: Print nothing. False prints what the command `elasticdl train` prints.
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
    from elasticdl.jobs.definition_source import ship_objects

    shipped = ship_objects(flags, folder=JobStore().home / "definitions")
    spec = JobSpec.build(kind=kind, name_suffix=new_suffix(), **shipped)
    if "model" in flags and not spec.runs_here:
        raise UserError(
            "model: functions and classes are shipped to workers on this machine; pods have the files of their image.",
            hint="Write it into a model zoo, and give model_zoo and model_def.",
        )
    display = make_display(quiet=quiet)
    if spec.runs_here:
        return JobResult.of(_run_here(spec, display))
    submission = _Submission(spec, display)
    submission.run(wait=True)
    return JobResult.of(submission.last_status())


def run_local(spec: JobSpec) -> int:
    """Runs a local job for the command line. Returns the exit code."""
    return exit_code(_run_here(spec, make_display(quiet=False)))


def submit(spec: JobSpec, *, wait: bool) -> int:
    """Submits a job to its cluster for the command line. Returns the exit code: 0 if the job is under way, or, with
    `wait`, if it has succeeded.
    """
    return _Submission(spec, make_display(quiet=False)).run(wait=wait)


def _run_here(spec: JobSpec, display: Display) -> JobStatus:
    from elasticdl.catalog.local.runner import LocalRunner

    runner = LocalRunner.create(spec, store=JobStore(), observer=display)
    try:
        return runner.run()
    finally:
        display.close()


class _Submission:
    def __init__(self, spec: JobSpec, display: Display) -> None:
        self._spec = spec
        self._display = display
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
