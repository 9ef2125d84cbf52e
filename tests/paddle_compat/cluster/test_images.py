"""The files of `paddle/k8s_train` and `paddle/k8s_data` fit together and to the code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.paddle_compat.cluster.arguments import TRAIN, parse
from elasticdl.paddle_compat.cluster.data_job import read_data_job
from elasticdl.paddle_compat.cluster.variables import GUIDE, read_variables

TOP = Path(__file__).resolve().parents[3] / "paddle"
TRAINING, DATA = TOP / "k8s_train", TOP / "k8s_data"


def container_of(path: Path) -> dict[str, Any]:
    (container,) = yaml.safe_load(path.read_text())["spec"]["template"]["spec"]["containers"]
    return dict(container)


def environment_of(path: Path) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container_of(path)["env"]}


@pytest.mark.parametrize("folder", [TRAINING, DATA], ids=lambda each: str(each.name))
def test_dockerfile_copies_files_that_exist(folder: Path) -> None:
    copied = [
        line.split()[1:-1] for line in (folder / "Dockerfile").read_text().splitlines() if line[:4] == "COPY"
    ]
    sources = {source for line in copied for source in line}
    # The package is built before.
    assert {source for source in sources if not (folder / source).is_file()} == {"dist/*.whl"}


@pytest.mark.parametrize("folder", [TRAINING, DATA], ids=lambda each: str(each.name))
def test_dockerfile_has_only_what_docker_podman_and_buildah_share(folder: Path) -> None:
    text = (folder / "Dockerfile").read_text().replace("\\\n", "")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert {words[0] for words in lines} <= {"ARG", "FROM", "RUN", "COPY", "ENV", "WORKDIR", "CMD"}
    # Flags, and text in place of files (`<<`), are those of one builder or of a later version.
    assert not [words for words in lines if words[1].startswith(("--", "<<"))]
    assert "# syntax" not in text


def test_start_script_has_the_flags_of_the_guide(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    words = subprocess.run(
        ["bash", str(TRAINING / "start.sh"), "--saving_period=5"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TRAINER_COUNT": "2"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert words[:2] == ["-u", "/root/start_paddle.py"]
    given = parse(words[2:], TRAIN, command="start_paddle.py").given
    assert given == {
        "dot_period": "10",
        "log_period": "50",
        "num_passes": "10",
        "trainer_count": "2",
        "saving_period": "5",
        "local": "0",
        "config": "./trainer_config.py",
        "config_args": "",
        "use_gpu": "0",
    }


def test_training_job_has_the_variables_of_the_guide() -> None:
    environment = environment_of(TRAINING / "job.yaml")
    assert environment == GUIDE
    variables = read_variables(environment)
    job = yaml.safe_load((TRAINING / "job.yaml").read_text())
    assert job["metadata"]["name"] == variables.job_name
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == variables.gradient_num
    assert container_of(TRAINING / "job.yaml")["volumeMounts"][0]["mountPath"] == str(variables.job_path)


def test_data_job_mounts_its_volume_above_its_folder() -> None:
    job = read_data_job(environment_of(DATA / "data.yaml"))
    assert container_of(DATA / "data.yaml")["volumeMounts"][0]["mountPath"] == str(job.out_dir.parent)
    assert str(job.split_count) == GUIDE["CONF_PADDLE_GRADIENT_NUM"]
    assert job.out_dir.name == GUIDE["JOB_NAME"]


def test_role_grants_only_what_nodes_ask() -> None:
    role, binding = yaml.safe_load_all((TRAINING / "rbac.yaml").read_text())
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        (["pods"], ["list"]),
        (["jobs"], ["get"]),
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_images_run_what_the_guide_runs() -> None:
    def command(folder: Path) -> list[str]:
        found = re.search(r"^CMD (.*)$", (folder / "Dockerfile").read_text(), re.MULTILINE)
        assert found is not None
        return list(json.loads(found[1]))

    assert command(TRAINING) == container_of(TRAINING / "job.yaml")["command"]
    assert shlex.join(command(DATA)) == "elasticdl paddle data"
