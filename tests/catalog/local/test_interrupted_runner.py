"""A job whose host is interrupted: the first time it stops in order, the second time it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.catalog.local.runner import LocalRunner
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus, RunState
from tests.catalog.recorder import Recorder


class Interrupter(Recorder):
    """Interrupts the job as often, once it has reported."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.runner: LocalRunner | None = None
        self._times = times

    def progressed(self, status: JobStatus) -> None:
        super().progressed(status)
        assert self.runner is not None
        while self._times:
            self._times -= 1
            self.runner.interrupt()


@pytest.mark.parametrize(
    ("times", "message"), [(1, ""), (2, "Killed by a second Ctrl-C.")], ids=["once", "twice"]
)
def test_interrupted_job_is_stopped(tmp_path: Path, times: int, message: str) -> None:
    observer = Interrupter(times)
    spec = JobSpec.build(job_name="job", job_command="sleep 600", num_workers=1)
    runner = observer.runner = LocalRunner.create(spec, store=JobStore(tmp_path), observer=observer)
    status = runner.run()
    assert status.state is RunState.STOPPED
    assert status.message == message
    assert observer.notes == [
        "Stopping. Ctrl-C again kills at once.",
        "To continue job job: elasticdl jobs resume job",
    ]
    assert observer.last is not None
    assert observer.last.state is RunState.STOPPED
    assert not runner.folder.is_running()
