"""Two users act on one job name at the same time: no command ends a job of the other user."""

from __future__ import annotations

from typing import Any

import pytest

from tests.catalog.api_server import MASTER, RECORD, RUNNING, ApiServer

WORKER = "job-edljob-worker-0"
NEEDED = (("configmaps", RECORD), ("secrets", RECORD), ("services", MASTER), ("pods", MASTER))
Uids = dict[tuple[str, str], str]


def uids(api: ApiServer) -> Uids:
    """Of what a job with a master is made of."""
    return {key: api.objects[key]["metadata"]["uid"] for key in NEEDED if key in api.objects}


def resubmitted(api: ApiServer) -> Uids:
    """Of the job before it only a worker is left."""
    for key in [key for key in api.objects if key != ("pods", WORKER)]:
        del api.objects[key]
    api.submitted(with_kubectl=False)
    api.master(**RUNNING)
    return uids(api)


def test_a_master_that_another_has_started_is_not_ended(elasticdl: Any, api: ApiServer) -> None:
    api.submitted(with_kubectl=False)
    api.said(state="running")
    api.master(phase="Failed")
    pod = api.objects["pods", MASTER]
    after: Uids = {}

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("DELETE", "pods") and not after:
            api.put("pods", {**pod, "metadata": {**pod["metadata"], "uid": "another"}, "status": RUNNING})
            after.update(uids(api))

    api.meanwhile = meanwhile
    result = elasticdl("jobs", "resume", "job")
    assert "Job job has a master: another user has started it meanwhile." in result.err
    assert result.code == 2
    assert uids(api) == after


def test_resume_during_another_resume_is_rejected(elasticdl: Any, api: ApiServer) -> None:
    api.submitted(with_kubectl=False)
    api.said(state="running")
    pod = api.objects.pop(("pods", MASTER))

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind, name) == ("GET", "pods", MASTER):
            api.put("pods", {**pod, "status": RUNNING})

    api.meanwhile = meanwhile
    result = elasticdl("jobs", "resume", "job")
    assert "Job job has a master: another user has started it meanwhile." in result.err
    assert result.code == 2


@pytest.mark.parametrize("with_kubectl", [False, True])
def test_a_job_that_gets_the_name_of_one_that_is_deleted(
    elasticdl: Any, api: ApiServer, with_kubectl: bool
) -> None:
    """The pods of the old one take their time to end."""
    api.submitted(with_kubectl=with_kubectl)
    api.said(state="stopped")
    api.worker(0)
    owner = {"uid": api.objects["configmaps", RECORD]["metadata"]["uid"]}
    api.change("pods", WORKER, {"metadata": {"ownerReferences": [owner]}})
    api.stuck.add(WORKER)
    new: Uids = {}
    looks: list[str] = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, name) == ("DELETE", WORKER):
            new.update(resubmitted(api))
        if new and (method, kind) == ("GET", "pods"):
            looks.append(name)
            if len(looks) == 3:
                del api.objects["pods", WORKER]

    api.meanwhile = meanwhile
    result = elasticdl("jobs", "delete", "job")
    assert (result.code, result.out) == (0, "Job job deleted.\n"), result.err
    assert ("pods", WORKER) not in api.objects
    assert uids(api) == new


@pytest.mark.parametrize("with_kubectl", [False, True])
def test_delete_spares_new_job_that_took_the_name(elasticdl: Any, api: ApiServer, with_kubectl: bool) -> None:
    api.submitted(with_kubectl=with_kubectl)
    api.said(state="stopped")
    new: Uids = {}

    def before(method: str, kind: str, name: str) -> bool:
        if (method, kind) == ("DELETE", "configmaps") and not new:
            new.update(resubmitted(api))
        return False

    api.hangs_up = before
    assert elasticdl("jobs", "delete", "job").code == 0
    assert uids(api) == new


def test_delete_removes_unowned_objects_of_kubectl_job(elasticdl: Any, api: ApiServer) -> None:
    api.submitted()
    api.said(state="stopped")
    api.worker(0)
    assert elasticdl("jobs", "delete", "job").code == 0
    assert api.objects == {}
