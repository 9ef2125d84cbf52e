"""--dry_run prints the resolved job and starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.jobs.schema.flag_index import LEAVES
from elasticdl.jobs.spec import from_yaml


def test_everything_is_resolved(elasticdl: Any, minimal: list[str]) -> None:
    result = elasticdl("train", *minimal, "--num_workers=2", "--dry_run")
    job = result.job
    assert {name for section in job.values() if isinstance(section, dict) for name in section} == {
        name for name, leaf in LEAVES.items() if leaf.section
    }
    assert job["training"]["distribution_strategy"] == "ParameterServerStrategy"
    assert job["nodes"]["num_ps"] == 1
    assert from_yaml(result.out).job_name == job["job_name"]


def test_nothing_is_started(
    elasticdl: Any, minimal: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))
    assert elasticdl("train", *minimal, "--dry_run").code == 0
    assert not (tmp_path / "home").exists()


def test_names_of_unnamed_jobs_differ(elasticdl: Any, minimal: list[str]) -> None:
    first, second = (elasticdl("train", *minimal, "--dry_run").job["job_name"] for _ in range(2))
    assert first != second
    assert str(first).startswith("digits-cnn-")


def test_the_definition_is_checked_if_the_job_would_run_here(
    elasticdl: Any, minimal: list[str], zoo: Path
) -> None:
    (zoo / "digits" / "cnn.py").write_text("def custom_model(): ...\n")
    result = elasticdl("train", *minimal, "--dry_run")
    assert result.code == 2
    assert "has no loss (--loss)" in result.err
    assert elasticdl("train", *minimal, "--image_name=x", "--dry_run").code == 0


def test_each_kind(elasticdl: Any, zoo: Path) -> None:
    common = [
        f"--model_zoo={zoo}",
        "--model_def=digits.cnn.custom_model",
        "--checkpoint_dir_for_init=c",
        "--dry_run",
    ]
    assert elasticdl("evaluate", *common, "--validation_data=d").job["kind"] == "evaluate"
    assert elasticdl("predict", *common, "--prediction_data=d", "--output=o.csv").job["kind"] == "predict"
    assert "would go nowhere" in elasticdl("predict", *common, "--prediction_data=d").err


def test_job_for_a_cluster_with_a_range_of_sizes_is_a_training_job(
    elasticdl: Any, minimal: list[str]
) -> None:
    flags = ["--image_name=x", "--max_workers=3", "--worker_resource_request=cpu=1,memory=1Gi"]
    document = yaml.safe_load(elasticdl("train", *minimal, *flags, "--dry_run").out)
    assert (document["apiVersion"], document["kind"]) == ("elasticdl.org/v1", "TrainingJob")
    assert document["spec"]["job"]["nodes"]["max_workers"] == 3
