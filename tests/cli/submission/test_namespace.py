"""The namespace of jobs: the one that is named, else that in which kubectl acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.platforms.kubernetes import kubeconfig
from elasticdl.platforms.kubernetes.kubeconfig import current_namespace
from tests.catalog.api_server import NAMESPACE, RUNNING, ApiServer

IMAGE = "--image_name=i"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With no configuration of kubectl."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(path: Path, current: str, **namespaces: str) -> str:
    contexts = [
        {"name": name, "context": {"cluster": "c", "namespace": space}} for name, space in namespaces.items()
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"current-context": current, "contexts": contexts}))
    return str(path)


def namespaces(elasticdl: Any, minimal: list[str], *words: str) -> set[str]:
    result = elasticdl("train", *minimal, IMAGE, "--dry_run", *words)
    assert result.code == 0, result.err
    return {document["metadata"]["namespace"] for document in yaml.safe_load_all(result.out)}


def test_without_a_configuration(elasticdl: Any, minimal: list[str], home: Path) -> None:
    assert namespaces(elasticdl, minimal) == {"default"}


def test_of_the_current_context(elasticdl: Any, minimal: list[str], home: Path) -> None:
    write(home / ".kube" / "config", "mine", other="theirs", mine="ours")
    assert namespaces(elasticdl, minimal) == {"ours"}
    assert namespaces(elasticdl, minimal, "--namespace=lab") == {"lab"}


def test_the_record_holds_it_for_the_master(elasticdl: Any, minimal: list[str], home: Path) -> None:
    write(home / ".kube" / "config", "mine", mine="ours")
    job = elasticdl("train", *minimal, IMAGE, "--dry_run").job
    assert job["cluster"]["namespace"] == "ours"


def test_first_kubeconfig_with_a_context_wins(home: Path) -> None:
    files = [write(home / "a", ""), write(home / "b", "mine", mine="ours"), str(home / "none")]
    assert current_namespace(environment={"KUBECONFIG": ":".join(files)}) == "ours"


@pytest.mark.parametrize("context", ["", "no-such"])
def test_no_current_context(home: Path, context: str) -> None:
    files = write(home / "a", context, mine="ours")
    assert current_namespace(environment={"KUBECONFIG": files}) == "default"


def test_in_a_pod(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "namespace").write_text("of-the-account\n")
    monkeypatch.setattr(kubeconfig, "_ACCOUNT", home)
    assert current_namespace(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "of-the-account"


def test_commands_use_the_current_namespace(elasticdl: Any, api: ApiServer) -> None:
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)
    assert "running" in elasticdl("jobs", "status", "job").out
    assert f"namespace {NAMESPACE}" in elasticdl("jobs", "list").out
    assert f"on this machine or in namespace {NAMESPACE}" in elasticdl("jobs", "status", "other").err
