"""What a worker and a master do not load before they begin: a job's start waits for it."""

import subprocess
import sys

import pytest


def _loads(module: str, unwanted: str) -> bool:
    program = f"import {module}, sys; sys.exit({unwanted!r} in sys.modules)"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode != 0


@pytest.mark.parametrize("unwanted", ["numpy", "yaml", "elasticdl.jobs.spec"])
def test_a_worker_asks_for_its_job_first(unwanted: str) -> None:
    assert not _loads("elasticdl.worker.__main__", unwanted)


def test_numpy_is_left_to_the_framework() -> None:
    assert not _loads("elasticdl.worker.process", "numpy")


@pytest.mark.parametrize(
    "unwanted",
    [
        "elasticdl.ps.client.parameter_client",
        "elasticdl.worker.model.served_model",
        "elasticdl.data.formats.csv_file",
        "pyarrow",
    ],
)
def test_a_worker_has_what_its_job_needs(unwanted: str) -> None:
    """And nothing for servers that the job may not have, or for data of other formats."""
    assert not _loads("elasticdl.worker.assembly", unwanted)


@pytest.mark.parametrize("unwanted", ["numpy", "yaml", "elasticdl.master.services.shard_service"])
def test_a_master_begins_with_little(unwanted: str) -> None:
    assert not _loads("elasticdl.master.kubernetes.pod_master", unwanted)
