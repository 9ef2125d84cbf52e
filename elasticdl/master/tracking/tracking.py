"""The runs of one job on all trackers that its flags name: `--mlflow_uri`, `--wandb_project`.

Without such a flag there is none, and no client library is imported.

Failure modes
    A client library is not installed: `UserError` with the command that installs it, before the job starts.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.tracking.recorder import Recorder
from elasticdl.master.tracking.run_description import describe_run
from elasticdl.master.tracking.tracker import RunEnd, Tracker

# How long the end of a job waits for trackers that do not answer.
_LAST_SECONDS = 10.0


class Tracking:
    """A sink of scalars (`ScalarSink`) that has a beginning and an end."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = recorders

    @classmethod
    def of(cls, spec: JobSpec, *, key: str, folder: Path) -> Tracking:
        """`key`: unique for every job. Raises `UserError` for a library that is missing."""
        check_libraries(spec)
        run = describe_run(spec, key)
        return cls([Recorder(tracker, run) for tracker in _trackers(spec, folder)])

    def __bool__(self) -> bool:
        return bool(self._recorders)

    def start(self) -> None:
        for recorder in self._recorders:
            recorder.start()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for recorder in self._recorders:
            recorder.scalars(step, values)

    async def finish(self, end: RunEnd, *, timeout_seconds: float = _LAST_SECONDS) -> None:
        """Records the end of the job, and waits until everything is recorded, or for as long as is bearable."""
        for recorder in self._recorders:
            recorder.end(end)
        await asyncio.gather(
            *(asyncio.to_thread(recorder.wait, timeout_seconds) for recorder in self._recorders)
        )

    def report(self) -> tuple[str, ...]:
        """Lines for the end of the job."""
        return tuple(line for recorder in self._recorders for line in recorder.report())


def check_libraries(spec: JobSpec) -> None:
    """Raises `UserError` unless the client libraries that the job's flags need are installed."""
    for flag, value, package, extra in (
        ("mlflow_uri", spec.tracking.mlflow_uri, "mlflow", "tracking"),
        ("wandb_project", spec.tracking.wandb_project, "wandb", "wandb"),
    ):
        if value and importlib.util.find_spec(package) is None:
            raise UserError(
                f"--{flag} needs the package {package}, which is not installed.", hint=install_command(extra)
            )


def _trackers(spec: JobSpec, folder: Path) -> list[Tracker]:
    trackers: list[Tracker] = []
    if spec.tracking.mlflow_uri:
        from elasticdl.master.tracking.mlflow_tracker import MlflowTracker

        trackers.append(MlflowTracker(spec.tracking.mlflow_uri, spec.tracking.mlflow_experiment))
    if spec.tracking.wandb_project:
        from elasticdl.master.tracking.wandb_tracker import WandbTracker

        trackers.append(WandbTracker(spec.tracking.wandb_project, folder))
    return trackers
