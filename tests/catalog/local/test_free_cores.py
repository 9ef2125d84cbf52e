"""A job with a range of sizes starts with a worker for each free core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.catalog.local.free_cores import free_cores, with_free_cores
from elasticdl.catalog.local.runner import LocalRunner
from elasticdl.catalog.observer import SILENT
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec


def job(**flags: Any) -> JobSpec:
    return JobSpec.build(job_name="job", job_command="true", **flags)


@pytest.mark.parametrize(
    ("flags", "cores", "workers"),
    [
        ({"min_workers": 2, "max_workers": 6}, 4, 4),
        ({"min_workers": 2, "max_workers": 6}, 0, 2),
        ({"min_workers": 2, "max_workers": 6}, 64, 6),
        ({"max_workers": 3}, 2, 2),
        ({"max_workers": 3}, 0, 1),
        ({"num_workers": 3, "min_workers": 2, "max_workers": 6}, 64, 3),
        ({"min_workers": 2}, 64, 2),
        ({}, 64, 1),
    ],
)
def test_size_is_within_the_range(flags: dict[str, Any], cores: int, workers: int) -> None:
    assert with_free_cores(job(**flags), cores).nodes.num_workers == workers


def test_free_cores_are_never_negative() -> None:
    assert free_cores() >= 0


def test_job_starts_with_the_free_cores(tmp_path: Path) -> None:
    spec = job(min_workers=1, max_workers=4)
    runner = LocalRunner.create(spec, store=JobStore(tmp_path), observer=SILENT, cores=lambda: 3)
    try:
        assert runner.folder.spec().nodes.num_workers == 3
    finally:
        runner.folder.release()
