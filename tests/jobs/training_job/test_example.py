"""The example of the page of elastic clusters can be run as it is written, with both API versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import parse_training_job
from elasticdl.jobs.training_job.resource import API_VERSIONS

EXAMPLE = Path(__file__).parents[3] / "example"


@pytest.mark.parametrize("api_version", API_VERSIONS)
def test_example_is_a_valid_elastic_job(api_version: str) -> None:
    document: dict[str, Any] = yaml.safe_load((EXAMPLE / "examplejob.yaml").read_text())
    job = parse_training_job({**document, "apiVersion": api_version})
    assert (job.spec.trainer.min_instance, job.spec.trainer.max_instance) == (2, 6)
    spec = job_spec_of(job)
    assert spec.nodes.num_ps == 0
    assert spec.model.job_command.startswith(f"cd {job.spec.trainer.workspace} && python train_ft.py ")


def test_image_has_the_program_in_the_workspace() -> None:
    document = yaml.safe_load((EXAMPLE / "examplejob.yaml").read_text())
    workspace = document["spec"]["trainer"]["workspace"]
    assert f"COPY train_ft.py {workspace}/train_ft.py" in (EXAMPLE / "Dockerfile").read_text()
