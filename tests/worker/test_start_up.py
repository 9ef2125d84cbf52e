"""What a worker and a master do not load before they begin: a job's start waits for it."""

import subprocess
import sys

import pytest


def _loads(module: str, unwanted: str) -> bool:
    program = f"import {module}, sys; sys.exit({unwanted!r} in sys.modules)"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode != 0


@pytest.mark.parametrize("unwanted", ["numpy", "yaml"])
def test_a_worker_asks_for_its_job_first(unwanted: str) -> None:
    """NumPy is left to the job's framework."""
    assert not _loads("elasticdl.worker.__main__", unwanted)


@pytest.mark.parametrize("unwanted", ["numpy", "yaml"])
def test_a_master_begins_with_little(unwanted: str) -> None:
    assert not _loads("elasticdl.master.pod", unwanted)
