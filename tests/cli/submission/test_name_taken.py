"""Submitting a job whose name is another's, or was until a moment ago: what is the other's stays, and what is left of
one that was deleted is waited for.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.catalog.api_server import MASTER, RECORD, RUNNING, ApiServer, set_timing

TRAIN = ("train", "--job_name=job", "--image_name=i", "--job_command=x")
SECRET = {"name": RECORD, "labels": {"elasticdl-job-name": "job"}}


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    """Masters come up there."""

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind, name) == ("POST", "pods", MASTER):
            api.master(**RUNNING)
            api.said(state="running")

    api.meanwhile = meanwhile
    return api


def test_same_job_submitted_by_another_user_during_an_outage(elasticdl: Any, api: ApiServer) -> None:
    """It is not taken for our own, though it says the same."""
    assert elasticdl(*TRAIN).code == 0
    theirs = copy.deepcopy(api.objects)
    theirs["configmaps", RECORD]["data"].pop("status.json")
    api.objects.clear()

    def hangs_up(method: str, kind: str, name: str) -> bool:
        if (method, kind) != ("POST", "configmaps") or api.objects:
            return False
        api.objects.update(copy.deepcopy(theirs))
        return True

    api.hangs_up = hangs_up
    result = elasticdl(*TRAIN)
    assert result.code == 2
    assert "The job name job is in use in namespace lab." in result.err
    assert api.objects == theirs


def test_submission_waits_for_deleted_job_of_same_name(elasticdl: Any, api: ApiServer) -> None:
    before = {"metadata": {**SECRET, "ownerReferences": [{"uid": "that-was"}]}}
    api.put("secrets", before)
    looks: list[str] = []
    comes_up = api.meanwhile

    def meanwhile(method: str, kind: str, name: str) -> None:
        comes_up(method, kind, name)
        if (method, kind) == ("GET", "secrets"):
            looks.append(name)
            if len(looks) == 3:
                del api.objects["secrets", RECORD]

    api.meanwhile = meanwhile
    result = elasticdl(*TRAIN)
    assert result.code == 0, result.err
    note = "Waiting for the end of Secret elasticdl-job, of a job that had this name before."
    assert (result.out + result.err).count(note) == 1
    (owner,) = api.objects["secrets", RECORD]["metadata"]["ownerReferences"]
    assert owner["uid"] == api.objects["configmaps", RECORD]["metadata"]["uid"]


def test_leftover_secret_is_reported_after_timeout(
    elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timing(monkeypatch, leftover_timeout_seconds=0.0)
    api.put("secrets", {"metadata": {**SECRET, "ownerReferences": [{"uid": "that-was"}]}})
    result = elasticdl(*TRAIN)
    assert result.code == 2
    assert "Secret elasticdl-job of a job that had this name before does not go." in result.err
    assert list(api.objects) == [("secrets", RECORD)]


def test_a_pod_that_leaves_has_its_own_time_for_that(
    elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timing(monkeypatch, leftover_timeout_seconds=0.0)
    leaving = {"deletionTimestamp": "2026-11-16T05:35:39Z", "deletionGracePeriodSeconds": 3600}
    api.put("pods", {"metadata": {"name": MASTER, **leaving, "ownerReferences": [{"uid": "that-was"}]}})
    looks: list[str] = []
    comes_up = api.meanwhile

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind, name) == ("GET", "pods", MASTER) and len(looks) < 3:
            looks.append(name)
            if len(looks) == 3:
                del api.objects["pods", MASTER]
        elif len(looks) == 3:
            comes_up(method, kind, name)

    api.meanwhile = meanwhile
    result = elasticdl(*TRAIN)
    assert result.code == 0, result.err
    (owner,) = api.objects["pods", MASTER]["metadata"]["ownerReferences"]
    assert owner["uid"] == api.objects["configmaps", RECORD]["metadata"]["uid"]


def test_master_started_concurrently_is_adopted(
    elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was there, and no master yet: by `elasticdl jobs resume`."""
    set_timing(monkeypatch, leftover_timeout_seconds=0.0)
    started: list[dict[str, Any]] = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("POST", "services"):
            uid = api.objects["configmaps", RECORD]["metadata"]["uid"]
            started.append(api.put("pods", {"metadata": {"name": MASTER, "ownerReferences": [{"uid": uid}]}}))
            api.master(**RUNNING)
            api.said(state="running")

    api.meanwhile = meanwhile
    result = elasticdl(*TRAIN)
    assert result.code == 0, result.err
    (theirs,) = started
    assert api.objects["pods", MASTER]["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert ("configmaps", RECORD) in api.objects
    assert "Waiting" not in result.out + result.err


@pytest.mark.parametrize(
    ("labels", "removal"),
    [
        (
            {"elasticdl-job-name": "job"},
            "pod,service,secret,networkpolicy --selector=elasticdl-job-name=job --namespace=lab",
        ),
        # What has our name and is not ours.
        ({}, "secret elasticdl-job --namespace=lab"),
    ],
)
def test_unrelated_object_with_the_name_fails_at_once(
    elasticdl: Any, api: ApiServer, labels: dict[str, str], removal: str
) -> None:
    api.put("secrets", {"metadata": {"name": RECORD, "labels": labels}})
    result = elasticdl(*TRAIN)
    assert result.code == 2
    assert "There is a Secret elasticdl-job in namespace lab already, of no job that is there." in result.err
    assert f"`kubectl delete {removal}`" in result.err
    assert list(api.objects) == [("secrets", RECORD)]
