"""A master in a pod asks its cluster by the account of its pod, whatever the variables of the job's nodes say: they may
be those of the shell that the job was submitted in.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.errors import UserError
from elasticdl.master.kubernetes import pod_master
from elasticdl.platforms.kubernetes import kubeconfig
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.credentials import Credentials


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As Kubernetes puts it into a pod."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("first")
    (folder / "namespace").write_text("lab\n")
    (folder / "ca.crt").write_text(Credentials.make("job").files()["ca.crt"])
    monkeypatch.setattr(kubeconfig, "_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return folder


def theirs(tmp_path: Path) -> Path:
    """The submitter's own configuration."""
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://elsewhere:6443"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }
    path = tmp_path / ".kube" / "config"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("variable", ["KUBECONFIG", "HOME", "none of them"])
def test_variables_do_not_lead_it_elsewhere(
    account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    values = {"KUBECONFIG": str(theirs(tmp_path)), "HOME": str(tmp_path)}
    if variable in values:
        monkeypatch.setenv(variable, values[variable])
    found: list[Cluster] = []

    async def run(cluster: Cluster, *_: Any) -> int:
        found.append(cluster)
        return 0

    monkeypatch.setattr(pod_master, "run", run)
    assert asyncio.run(pod_master._main("job", tmp_path)) == 0
    assert [(cluster.server, cluster.namespace) for cluster in found] == [("https://10.0.0.1:443", "lab")]


def test_missing_service_account_is_an_error(account: Path) -> None:
    (account / "token").unlink()
    with pytest.raises(UserError, match="has no service account"):
        Cluster.inside(patience=1.0)


def test_outside_of_all_pods_too(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(UserError, match="not in a pod"):
        Cluster.inside(patience=1.0)
