"""The last reports are sent before the program ends, also without a flush."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]

PROGRAM = """
from elasticai_api.common.data_shard_service import build_data_shard_service
service = build_data_shard_service(
    batch_size=4, dataset_size=48, num_minibatches_per_shard=12, dataset_name="d"
)
service.fetch_shard()
for _ in range(5):
    service.report_batch_done()
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_at_the_end(job: Any) -> None:
    done = _run(PROGRAM)
    assert done.returncode == 0, done.stderr
    assert job.done("d") == 20


def test_at_an_error(job: Any) -> None:
    assert _run(PROGRAM + "raise SystemExit(3)").returncode == 3
    assert job.done("d") == 20


def test_program_ends_while_thread_waits_for_shard(job: Any) -> None:
    """Such as that of an input pipeline, when the program has had enough."""
    program = PROGRAM.replace("48", "96") + (
        "import threading\n"
        "service.fetch_shard()\n"
        "service.report_batch_done(76)\n"
        "threading.Thread(target=service.fetch_shard, daemon=True).start()\n"
    )
    done = _run(program)
    assert done.returncode == 0, done.stderr
    assert job.done("d") == 96
