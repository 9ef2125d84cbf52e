"""Flags, a job file and the Python API make the same job, and a flag goes before the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.schema.flag_index import LEAVES
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml

CHOSEN: dict[str, Any] = {
    "job_name": "one",
    "training_data": "data/*.rec",
    "num_workers": 3,
    "num_ps": 2,
    "model_params": {"depth": "3", "columns": '["a","b"]', "note": 'it\'s, "so"'},
    "shuffle": False,
    "stall_factor": 7.5,
    "worker_resource_request": {"cpu": "0.5", "memory": "2Gi", "gpu": "1"},
    "volume": [
        {"host_path": "/h", "mount_path": "/m"},
        {"claim_name": "c", "mount_path": "/n", "sub_path": "s"},
    ],
    "envs": {"A": "1", "B": "x,y;z"},
    "worker_pod_priority": "high=0.5",
}


def flag_words(values: dict[str, Any]) -> list[str]:
    words = []
    for name, raw in values.items():
        grammar = LEAVES[name].flag.grammar
        words.append(f"--{name}={grammar.text(grammar.parse(raw))}")
    return words


def test_three_ways(elasticdl: Any, zoo: Path, tmp_path: Path) -> None:
    values = {"model_zoo": str(zoo), "model_def": "digits.cnn.custom_model", **CHOSEN}
    api = JobSpec.build(**values)
    typed = elasticdl("train", *flag_words(values), "--dry_run")
    assert typed.code == 0, typed.err
    assert typed.out == to_yaml(api)
    file = tmp_path / "job.yaml"
    file.write_text(typed.out)
    assert elasticdl("train", "-f", str(file), "--dry_run").out == typed.out
    assert from_yaml(typed.out) == api


def test_a_flag_goes_before_the_file(elasticdl: Any, minimal: list[str], tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("nodes:\n  num_workers: 2\n  num_ps_pods: 2\ntraining:\n  num_epochs: 4\n")
    job = elasticdl("train", f"--file={file}", *minimal, "--num_ps=3", "--num_epochs=5", "--dry_run").job
    assert job["nodes"]["num_workers"] == 2
    assert job["nodes"]["num_ps"] == 3
    assert job["training"]["num_epochs"] == 5


def test_a_file_from_standard_input(elasticdl_process: Any, minimal: list[str]) -> None:
    result = elasticdl_process("train", "-f", "-", *minimal, "--dry_run", stdin="job_name: piped\n")
    assert result.job["job_name"] == "piped"


def test_the_command_decides_what_kind_of_job_it_is(
    elasticdl: Any, minimal: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    trained = elasticdl("train", *minimal, "--num_epochs=3", "--validation_data=v", "--dry_run")
    file.write_text(trained.out)
    job = elasticdl("evaluate", "-f", str(file), "--checkpoint_dir_for_init=ck", "--dry_run").job
    assert job["kind"] == "evaluate"
    assert job["data"]["validation_data"] == "v"


def test_same_mistake_has_the_same_message_three_ways(
    elasticdl: Any, minimal: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("kind: train\nnodes:\n  num_workers: two\n")
    assert (
        "error: --num_workers: 'two' is not a whole number."
        in elasticdl("train", *minimal, "--num_workers=two").err
    )
    assert (
        f"error: {file}:3: nodes.num_workers: 'two' is not a whole number."
        in elasticdl("train", *minimal, "-f", str(file)).err
    )
    with pytest.raises(Exception, match="num_workers: 'two' is not a whole number"):
        JobSpec.build(model_zoo="z", model_def="a.b.c", training_data="d", num_workers="two")


def test_job_files_that_cannot_be_read(elasticdl: Any, tmp_path: Path) -> None:
    for name, content, message in (
        ("none.yaml", None, "No such file or directory"),
        ("folder", b"", "Is a directory"),
        ("latin.yaml", b"kind: \xff", "is not UTF-8 text"),
        ("broken.yaml", b"a: [", "this is not YAML"),
    ):
        path = tmp_path / name
        if name == "folder":
            path.mkdir()
        elif content is not None:
            path.write_bytes(content)
        result = elasticdl("train", "-f", str(path))
        assert result.code == 2
        assert str(path) in result.err
        assert message in result.err
