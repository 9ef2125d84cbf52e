"""Programs that hang before they ask for their data: ended, tried again as often as failed ones, and then the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e import programs
from e2e.conftest import ROOT, Gates, Job

# worker-0 trains when it may. The others hang, or only the first of them does.
PROGRAM = """
import os, sys, threading, time
from pathlib import Path

gates, number = Path(os.environ["ELASTICDL_TEST_GATES"]), int(os.environ["WORKER_ID"])
if 1 <= number <= int(sys.argv[1]):
    print("waiting for the license server", flush=True)
    threading.Event().wait()
from elasticai_api.common.data_shard_service import build_data_shard_service

service = build_data_shard_service(
    batch_size=10, num_epochs=1, dataset_size=100, num_minibatches_per_shard=2, dataset_name="numbers"
)
while shard := service.fetch_shard():
    if number > 0:
        (gates / "hold").unlink(missing_ok=True)
    while (gates / "hold").exists():
        time.sleep(0.01)
    for start in range(shard.start, shard.end, 10):
        service.report_batch_done(min(10, shard.end - start))
"""


@pytest.fixture
def start_hanging(start_job: Callable[..., Job], tmp_path: Path, gates: Gates) -> Callable[..., Job]:
    def start(hang: int, seconds: int) -> Job:
        """So many after worker-0 hang; worker-0 waits until one does not."""
        (tmp_path / "train.py").write_text(PROGRAM)
        (gates.folder / "hold").touch()
        command = f"env PYTHONPATH={ROOT} {sys.executable} {tmp_path}/train.py {hang}"
        return start_job(
            "train",
            f"--job_command={command}",
            "--num_workers=2",
            f"--start_timeout_seconds={seconds}",
            "--relaunch_on_worker_failure=1",
            "--job_name=hanging",
        )

    return start


def test_program_that_hangs_once_is_restarted(start_hanging: Callable[..., Job]) -> None:
    # Long enough for the one that does not hang to begin, also where that takes twenty times as long as it should.
    job = start_hanging(1, seconds=20)
    programs.assert_exact(job, dataset="numbers", epochs=1, size=100)
    said = programs.log(job, "master")
    assert "Killing worker-1: no request for data within " in said


def test_program_that_hangs_repeatedly_fails_the_job(start_hanging: Callable[..., Job]) -> None:
    job = start_hanging(100, seconds=6)
    assert job.wait() == 1
    assert "has asked for no data within 6 s of its start (--start_timeout_seconds)" in job.output
    assert "waiting for the license server" in job.command("jobs", "logs", "hanging", "worker-2").stdout
    assert programs.nodes(job, "worker") == {"worker-0", "worker-1", "worker-2"}
    programs.assert_nothing_left(job)
