"""The cluster: whether it answers, and what its API server says that this user may do."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.doctor.cluster_checks import check_cluster
from elasticdl.doctor.finding import Level
from tests.catalog.api_server import ApiServer


def test_no_configuration_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    (finding,) = check_cluster()
    assert finding.level is Level.ABSENT
    assert "KUBECONFIG" in finding.fix


def test_cluster_that_allows_everything_is_well(api: ApiServer) -> None:
    permissions, training_jobs, metrics = check_cluster()
    assert (permissions.level, permissions.text) == (
        Level.OK,
        "answers, and jobs may be run in namespace lab",
    )
    assert training_jobs.level is Level.ABSENT
    assert "trainingjob-crd.yaml" in training_jobs.fix
    assert metrics.level is Level.ABSENT
    api.has_training_jobs = True
    assert check_cluster()[1].level is Level.OK
    # Nothing is created.
    assert api.objects == {}


def test_missing_permissions_are_named_with_the_role_that_grants_them(api: ApiServer) -> None:
    api.forbidden = {("create", "pods"), ("get", "pods"), ("create", "secrets")}
    finding, *_ = check_cluster()
    assert finding.level is Level.ERROR
    assert "refuses what jobs need in namespace lab: pods: get, create; pods/log: get; secrets: create" in (
        finding.text
    )
    assert finding.fix.startswith(
        "kubectl create role elasticdl-user --verb=create,get --resource=pods,pods/log,secrets --namespace=lab"
    )


def test_cluster_that_is_gone_is_an_error(api: ApiServer) -> None:
    api.close()
    (finding,) = check_cluster(timeout_seconds=0.1)
    assert finding.level is Level.ERROR
    assert finding.fix


def test_configuration_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{")
    monkeypatch.setenv("KUBECONFIG", str(path))
    (finding,) = check_cluster()
    assert finding.level is Level.ERROR
    assert str(path) in finding.text
