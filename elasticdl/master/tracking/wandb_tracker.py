"""An offline run of a Weights & Biases project, in the folder of the job; `wandb sync` uploads it.

Offline only: without an answer from its server the online client keeps the process from ending, and no setting limits
that wait (docs/decisions/0043-experiment-tracking.md).

The run's id is the job's key. Each start of the master writes a folder of its own, and `wandb sync` makes one run of
them. Points have the job's step as `global_step`, which is the axis of all charts: W&B's own step may not go back, and
that of a job does after a rollback.

Failure modes
    The disk is full, or the client's own process is gone: `TrackerError`. The master is killed: what the client has not
    written to its file, up to 32 KB, is lost. The next master says so, in the log and at the end of the job.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elasticdl.master.tracking.tracker import Point, Run, RunEnd, TrackerError

_STEP = "global_step"


class WandbTracker:
    def __init__(self, project: str, folder: Path) -> None:
        """`folder`: of the job."""
        self.name = f"W&B project {project}"
        self._project = project
        self._folder = folder
        self._run: Any = None
        # A job reports to nowhere else: the client would send its own errors to its makers.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

    def open(self, run: Run) -> str:
        import wandb

        settings = wandb.Settings(
            # Settings for the job, not for the master's process: no output, no source tree, no memory.
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
            silent=True,
        )
        killed = sum(
            not _end_mark(each).exists() for each in self._folder.glob(f"wandb/offline-run-*-{run.key}")
        )
        with _errors():
            self._run = wandb.init(
                project=self._project,
                id=run.key,
                name=run.name,
                mode="offline",
                dir=str(self._folder),
                config={**run.params, **run.tags},
                settings=settings,
            )
            self._run.define_metric(_STEP)
            self._run.define_metric("*", step_metric=_STEP)
        gap = f" (without the last metrics of {killed} killed master{'s' * (killed > 1)})" if killed else ""
        return f"wandb sync {self._run_folder.parent}/offline-run-*{gap}"

    def record(self, points: Sequence[Point]) -> None:
        with _errors():
            for point in points:
                self._run.log({**point.values, _STEP: point.step})

    def close(self, end: RunEnd) -> None:
        with _errors():
            self._run.summary.update({**end.tags, "elasticdl.state": end.state})
            self._run.finish(exit_code=0 if end.state == "succeeded" else 1)
            _end_mark(self._run_folder).touch()

    @property
    def _run_folder(self) -> Path:
        return Path(self._run.dir).parent


def _end_mark(run_folder: Path) -> Path:
    """The file that says that everything in the folder of a master's run is written."""
    return run_folder.parent / f"complete.{run_folder.name}"


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turns the errors of the client into `TrackerError`."""
    import wandb

    try:
        yield
    except (wandb.Error, OSError) as error:
        raise TrackerError(f"{type(error).__name__}: {error}") from error
