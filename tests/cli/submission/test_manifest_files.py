"""--dry_run and --yaml of a job with an image: everything for Kubernetes, without a cluster."""

from __future__ import annotations

import base64
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

IMAGE = "--image_name=registry/mnist:1"
# Of sizes.
RANGE = ["--max_workers=3", "--worker_resource_request=cpu=1,memory=1Gi"]


def test_dry_run_prints_what_would_be_submitted(elasticdl: Any, minimal: list[str]) -> None:
    result = elasticdl("train", *minimal, IMAGE, "--job_name=test-mnist", "--dry_run")
    assert result.code == 0, result.err
    names = [(d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all(result.out)]
    assert names == [
        ("ConfigMap", "elasticdl-test-mnist"),
        ("Secret", "elasticdl-test-mnist"),
        ("NetworkPolicy", "elasticdl-test-mnist"),
        ("NetworkPolicy", "elasticdl-test-mnist-api"),
        ("Service", "elasticdl-test-mnist-master"),
        ("Pod", "elasticdl-test-mnist-master"),
    ]


def test_yaml_file_is_readable_by_its_user_only(elasticdl: Any, minimal: list[str], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    result = elasticdl("train", *minimal, IMAGE, f"--yaml={path}")
    assert f"kubectl apply -f {path}" in result.out
    assert len(list(yaml.safe_load_all(path.read_text()))) == 6
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_overwritten_yaml_file_loses_its_old_readers(
    elasticdl: Any, minimal: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("an older one")
    path.chmod(0o664)
    assert elasticdl("train", *minimal, IMAGE, f"--yaml={path}").code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_pipe_keeps_its_mode(elasticdl: Any, minimal: list[str], tmp_path: Path) -> None:
    """As /dev/null, say, which all users share."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    path.chmod(0o622)
    # A reader must exist before it can be written to; what is written is far less than it holds.
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert elasticdl("train", *minimal, IMAGE, f"--yaml={path}").code == 0
        assert os.read(reader, 1 << 20).startswith(b"apiVersion: v1")
    finally:
        os.close(reader)
    assert stat.S_IMODE(path.stat().st_mode) == 0o622


def test_a_file_that_cannot_be_written(elasticdl: Any, minimal: list[str], tmp_path: Path) -> None:
    result = elasticdl("train", *minimal, IMAGE, f"--yaml={tmp_path}/nowhere/job.yaml")
    assert result.code == 2
    assert "--yaml: " in result.err
    assert "No such file" in result.err


@pytest.mark.parametrize("flag", ["--yaml=job.yaml", "--wait"])
def test_only_for_jobs_with_an_image(elasticdl: Any, minimal: list[str], flag: str) -> None:
    result = elasticdl("train", *minimal, flag)
    assert result.code == 2
    assert f"{flag.partition('=')[0]} is for jobs on a cluster" in result.err


def test_variables_of_the_submitter(
    elasticdl: Any, minimal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_A", "one")
    monkeypatch.setenv("TEAM_B", "two")
    monkeypatch.setenv("OTHER_TEAM_C", "three")
    words = [IMAGE, "--populate_env_names=TEAM_.*", "--envs=TEAM_B=mine"]
    assert variables(elasticdl, minimal, *words) == {"TEAM_A": "one", "TEAM_B": "mine"}


def test_variables_that_say_which_cluster_the_submitter_is_in(
    elasticdl: Any, minimal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pod of another cluster: the job's master would look for its own there."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_PORT_443_TCP", "tcp://10.0.0.1:443")
    monkeypatch.setenv("KUBE_TEAM", "one")
    words = [IMAGE, "--populate_env_names=KUBE.*"]
    assert variables(elasticdl, minimal, *words) == {"KUBE_TEAM": "one"}
    result = elasticdl("train", *minimal, *words, "--dry_run")
    master = next(d for d in yaml.safe_load_all(result.out) if d["kind"] == "Pod")["spec"]["containers"][0]
    names = {variable["name"] for variable in master["env"]}
    assert not [name for name in names if name.startswith("KUBERNETES_")]
    explicitly = variables(elasticdl, minimal, *words, "--envs=KUBERNETES_SERVICE_HOST=proxy")
    assert explicitly["KUBERNETES_SERVICE_HOST"] == "proxy"


def test_variables_of_the_submitter_that_are_ours(
    elasticdl: Any, minimal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a shell inside of a pod of another job."""
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1:50001")
    monkeypatch.setenv("WORKER_ID", "3")
    result = elasticdl("train", *minimal, IMAGE, "--populate_env_names=MASTER.*|WORKER_.*", "--dry_run")
    assert result.code == 2
    assert "--populate_env_names: MASTER_ADDR and WORKER_ID: set by the master" in result.err


def test_a_pattern_that_is_none(elasticdl: Any, minimal: list[str]) -> None:
    result = elasticdl("train", *minimal, IMAGE, "--populate_env_names=(", "--dry_run")
    assert result.code == 2
    assert "--populate_env_names: '(' is not a regular expression" in result.err


def test_fields_for_all_pods_from_a_file(elasticdl: Any, minimal: list[str], tmp_path: Path) -> None:
    path = tmp_path / "fields.yaml"
    path.write_text("pod_spec:\n  nodeSelector: {disk: ssd}\n  labels: {team: vision}\n")
    result = elasticdl("train", *minimal, IMAGE, f"--cluster_spec={path}", "--dry_run")
    pod = next(d for d in yaml.safe_load_all(result.out) if d["kind"] == "Pod")
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["metadata"]["labels"]["team"] == "vision"


def test_a_file_of_fields_with_a_mistake(elasticdl: Any, minimal: list[str], tmp_path: Path) -> None:
    path = tmp_path / "fields.yaml"
    path.write_text("pod_spec:\n  nodeSelectors: {disk: ssd}\n")
    result = elasticdl("train", *minimal, IMAGE, f"--cluster_spec={path}", "--dry_run")
    assert result.code == 2
    assert "nodeSelectors is not one of" in result.err
    assert "did you mean nodeSelector" in result.err.lower() or "nodeSelector?" in result.err


@pytest.mark.parametrize(("mount", "problem"), [("/mnt", ""), ("/elsewhere", "--output: no --volume")])
def test_a_volume_that_only_the_file_mounts(
    elasticdl: Any, minimal: list[str], tmp_path: Path, mount: str, problem: str
) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(f"pod_spec:\n  volumeMounts: [{{name: n, mountPath: {mount}}}]\n")
    result = elasticdl("train", *minimal, IMAGE, "--output=/mnt/x", f"--cluster_spec={path}", "--dry_run")
    assert result.code == (2 if problem else 0), result.err
    assert problem in result.err


def test_failing_manifests_leave_an_older_file_as_it_was(
    elasticdl: Any, minimal: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("an older one")
    monkeypatch.setenv("WORKER_ID", "7")
    result = elasticdl("train", *minimal, IMAGE, "--populate_env_names=WORKER_.*", f"--yaml={path}")
    assert result.code == 2
    assert path.read_text() == "an older one"


def test_home_folder_in_paths(
    elasticdl: Any, minimal: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert elasticdl("train", *minimal, IMAGE, "--yaml=~/job.yaml").code == 0
    assert (tmp_path / "job.yaml").is_file()


SECRETS = ["--envs=PASSWORD=hunter2", "--populate_env_names=API_KEY", "--job_name=job"]


@pytest.mark.parametrize("kind", ["job", "training job"])
def test_dry_run_prints_no_secret_value(
    elasticdl: Any, minimal: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("API_KEY", "from the shell")
    result = elasticdl(
        "train", *minimal, IMAGE, *SECRETS, *(RANGE if kind == "training job" else []), "--dry_run"
    )
    assert result.code == 0, result.err
    for value in ("hunter2", "from the shell"):
        assert value not in result.out
        assert base64.b64encode(value.encode()).decode() not in result.out
    secrets = {d["metadata"]["name"]: d for d in yaml.safe_load_all(result.out) if d["kind"] == "Secret"}
    # Valid manifests, and pods do not start without their keys.
    assert all(secret["data"] == {} for secret in secrets.values())
    names = {
        name: secret["metadata"]["annotations"]["elasticdl-redacted"] for name, secret in secrets.items()
    }
    assert names.pop("elasticdl-job-envs") == "API_KEY, PASSWORD (written by --yaml=FILE)"
    if kind == "job":
        assert names == {"elasticdl-job": "token, ca.crt, tls.crt, tls.key (written by --yaml=FILE)"}


@pytest.mark.parametrize("kind", ["job", "training job"])
def test_yaml_file_has_values_of_variables_in_a_secret_only(
    elasticdl: Any, minimal: list[str], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "job.yaml"
    words = [IMAGE, "--envs=PASSWORD=hunter2", "--job_name=job", *(RANGE if kind == "training job" else [])]
    assert elasticdl("train", *minimal, *words, f"--yaml={path}").code == 0
    assert "hunter2" not in path.read_text()
    documents = list(yaml.safe_load_all(path.read_text()))
    (secret,) = (d for d in documents if d["metadata"]["name"] == "elasticdl-job-envs")
    assert base64.b64decode(secret["data"]["PASSWORD"]) == b"hunter2"


def variables(elasticdl: Any, minimal: list[str], *words: str) -> dict[str, str]:
    """The values of a job's variables, where --yaml writes them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        result = elasticdl("train", *minimal, *words, "--job_name=job", f"--yaml={path}")
        assert result.code == 0, result.err
        documents = list(yaml.safe_load_all(path.read_text()))
    (secret,) = (d for d in documents if d["metadata"]["name"] == "elasticdl-job-envs")
    return {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
