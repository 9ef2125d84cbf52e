"""Submitting a job whose name is another's, or was until a moment ago: what is the other's stays, and what is left of
one that was deleted is waited for.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from elasticdl.cli import submit
from tests.cli.api_server import MASTER, RECORD, RUNNING, ApiServer

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


def test_the_same_job_that_another_has_submitted_while_nobody_answered(
    elasticdl: Any, api: ApiServer
) -> None:
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


def test_what_is_left_of_a_job_that_was_deleted_is_waited_for(elasticdl: Any, api: ApiServer) -> None:
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
    told = "Waiting for the end of Secret elasticdl-job, of a job that had this name before."
    assert (result.out + result.err).count(told) == 1
    (owner,) = api.objects["secrets", RECORD]["metadata"]["ownerReferences"]
    assert owner["uid"] == api.objects["configmaps", RECORD]["metadata"]["uid"]


def test_but_not_for_ever(elasticdl: Any, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_GOING_SECONDS", 0.0)
    api.put("secrets", {"metadata": {**SECRET, "ownerReferences": [{"uid": "that-was"}]}})
    result = elasticdl(*TRAIN)
    assert result.code == 2
    assert "Secret elasticdl-job of a job that had this name before does not go." in result.err
    assert list(api.objects) == [("secrets", RECORD)]


def test_what_is_of_no_job_is_told_at_once(elasticdl: Any, api: ApiServer) -> None:
    api.put("secrets", {"metadata": SECRET})
    result = elasticdl(*TRAIN)
    assert result.code == 2
    assert "There is a Secret elasticdl-job in namespace lab already, of no job that is there." in result.err
    assert "`kubectl delete secret elasticdl-job --namespace=lab`" in result.err
    assert list(api.objects) == [("secrets", RECORD)]
