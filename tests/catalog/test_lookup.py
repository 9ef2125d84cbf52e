"""Where a name is looked for: on this machine, then on the configured cluster, or only in a named namespace."""

from __future__ import annotations

import asyncio

import pytest

from elasticdl.catalog.job import Job
from elasticdl.catalog.lookup import JobList, JobLookup
from elasticdl.errors import UserError
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from tests.catalog.api_server import RUNNING, ApiServer, set_timing


def find(name: str, namespace: str = "") -> Job:
    async def main() -> Job:
        async with JobLookup(namespace=namespace) as lookup:
            return await lookup.find(name)

    return asyncio.run(main())


def list_all(namespace: str = "") -> JobList:
    async def main() -> JobList:
        async with JobLookup(namespace=namespace) as lookup:
            return await lookup.list()

    return asyncio.run(main())


@pytest.fixture
def both(api: ApiServer) -> ApiServer:
    """A job called job on this machine and on the cluster."""
    JobStore().create(JobSpec.build(job_name="job", job_command="x"), now=1.0).release()
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)
    return api


def test_job_of_this_machine_comes_first_and_the_cluster_is_not_asked(both: ApiServer) -> None:
    assert find("job").location == "here"
    assert both.asked == []


def test_named_namespace_excludes_this_machine(both: ApiServer) -> None:
    assert find("job", namespace="lab").location == "namespace lab"
    assert [job.location for job in list_all("lab").jobs] == ["namespace lab"]


def test_list_has_both_the_oldest_first(both: ApiServer) -> None:
    assert [job.location for job in list_all().jobs] == ["here", "namespace lab"]


def test_unknown_name_is_an_error_with_the_nearest(both: ApiServer) -> None:
    with pytest.raises(
        UserError, match=r"on this machine or in namespace lab of the cluster\. Did you mean job\?"
    ):
        find("jov")


def test_cluster_that_does_not_answer_leaves_the_local_jobs(
    both: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.hangs_up = lambda method, kind, name: True
    set_timing(monkeypatch, request_timeout_seconds=0.0)
    found = list_all()
    assert [job.location for job in found.jobs] == ["here"]
    assert "does not answer" in found.problem
    with pytest.raises(UserError, match="does not answer"):
        list_all("lab")
