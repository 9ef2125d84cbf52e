"""What a catalog of a cluster adds to a submitted job, and what it refuses."""

from __future__ import annotations

import asyncio

import pytest

from elasticdl.catalog.kubernetes.catalog import KubernetesCatalog
from elasticdl.errors import UserError
from elasticdl.jobs.job_record import JobRecord
from elasticdl.jobs.spec import JobSpec
from tests.catalog.api_server import NAMESPACE, RECORD, ApiServer


def submit(spec: JobSpec) -> None:
    async def main() -> None:
        async with KubernetesCatalog.connect(namespace=NAMESPACE) as catalog:
            await catalog.submit(spec)

    asyncio.run(main())


def test_submitted_job_is_of_the_catalogs_namespace(api: ApiServer) -> None:
    submit(JobSpec.build(job_name="job", image_name="i", job_command="x"))
    record = JobRecord.of(api.objects["configmaps", RECORD]["data"])
    assert record.spec().cluster.namespace == NAMESPACE
    assert not record.has_status


def test_job_for_another_namespace_is_refused(api: ApiServer) -> None:
    with pytest.raises(
        UserError, match=f"is for namespace other, and this catalog is of namespace {NAMESPACE}"
    ):
        submit(JobSpec.build(job_name="job", image_name="i", job_command="x", namespace="other"))
    assert api.objects == {}
