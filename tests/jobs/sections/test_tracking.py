"""Flags of experiment trackers: addresses without passwords, and where a run can be kept."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml


def build(**flags: Any) -> JobSpec:
    return JobSpec.build(job_name="job", job_command="true", **flags)


@pytest.mark.parametrize("uri", ["http://127.0.0.1:5000", "https://mlflow.example.com/team", ""])
def test_address_of_server_is_accepted_and_survives_a_file(uri: str) -> None:
    spec = build(mlflow_uri=uri, mlflow_experiment="clicks / daily", wandb_project="clicks")
    assert spec.tracking.mlflow_uri == uri
    assert from_yaml(to_yaml(spec)) == spec


@pytest.mark.parametrize("uri", ["mlruns", "sqlite:///runs.db", "http://", "http://host:port", "http://a b"])
def test_other_addresses_are_rejected(uri: str) -> None:
    with pytest.raises(UserError, match="URL"):
        build(mlflow_uri=uri)


def test_password_in_address_is_rejected_and_not_repeated() -> None:
    with pytest.raises(UserError, match="MLFLOW_TRACKING_PASSWORD") as error:
        build(mlflow_uri="http://me:hunter2@host")
    assert "hunter2" not in str(error.value)


def test_wandb_run_in_a_pod_is_rejected() -> None:
    with pytest.raises(UserError, match="--wandb_project is for jobs on this machine"):
        build(wandb_project="clicks", image_name="registry/image")
