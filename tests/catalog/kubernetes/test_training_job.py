"""Jobs with a range of sizes: TrainingJobs where the cluster has these, and changed as such from then on."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from elasticdl.catalog.kubernetes.catalog import KubernetesCatalog
from elasticdl.catalog.kubernetes.job import KubernetesJob
from elasticdl.catalog.kubernetes.submission import complete_spec
from elasticdl.catalog.kubernetes.training_job import training_job_text
from elasticdl.errors import UserError
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import parse_training_job
from tests.catalog.api_server import NAMESPACE, RECORD, RUNNING, ApiServer

REQUEST = {"worker_resource_request": "cpu=1,memory=1Gi"}


def spec(**flags: Any) -> JobSpec:
    given = {"image_name": "i", "job_command": "x", "min_workers": 2, "max_workers": 10, **REQUEST, **flags}
    return JobSpec.build(job_name="job", namespace=NAMESPACE, **given)


def use(work: Callable[[KubernetesCatalog], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with KubernetesCatalog.connect(namespace=NAMESPACE) as catalog:
            return await work(catalog)

    return asyncio.run(main())


def with_job(work: Callable[[KubernetesJob], Awaitable[Any]]) -> Any:
    return use(lambda catalog: work(catalog.job("job")))


@pytest.fixture
def managed(api: ApiServer) -> ApiServer:
    """A running job that belongs to a TrainingJob."""
    api.has_training_jobs = True
    use(lambda catalog: catalog.submit(spec()))
    owner = api.objects["trainingjobs", "job"]
    api.submitted(with_kubectl=False, min_workers=2, max_workers=10)
    reference = {"apiVersion": owner["apiVersion"], "kind": "TrainingJob", "uid": owner["metadata"]["uid"]}
    api.change("configmaps", RECORD, {"metadata": {"ownerReferences": [reference]}})
    api.master(**RUNNING)
    api.said(state="running")
    return api


def test_job_with_a_range_becomes_a_training_job(api: ApiServer) -> None:
    api.has_training_jobs = True
    use(lambda catalog: catalog.submit(spec()))
    assert [kind for kind, _ in api.objects] == ["trainingjobs"]
    found = job_spec_of(parse_training_job(api.objects["trainingjobs", "job"]))
    assert (found.nodes.min_workers, found.nodes.max_workers) == (2, 10)
    assert found.model.job_command == "x"
    with pytest.raises(UserError, match="The job name job is in use"):
        use(lambda catalog: catalog.submit(spec()))


@pytest.mark.parametrize(
    ("flags", "has_definition"),
    [({}, False), ({"max_workers": 0}, True), ({"max_workers": 2, "num_workers": 2}, True)],
    ids=["not installed", "no maximum", "one size"],
)
def test_other_jobs_have_objects_of_their_own(
    api: ApiServer, flags: dict[str, Any], *, has_definition: bool
) -> None:
    api.has_training_jobs = has_definition
    use(lambda catalog: catalog.submit(spec(**flags)))
    assert ("configmaps", RECORD) in api.objects
    assert ("trainingjobs", "job") not in api.objects


def test_manifest_is_what_is_submitted(api: ApiServer) -> None:
    api.has_training_jobs = True
    use(lambda catalog: catalog.submit(spec(envs="A=b")))
    written, secret = yaml.safe_load_all(training_job_text(complete_spec(spec(envs="A=b"))))
    assert api.objects["trainingjobs", "job"]["spec"] == written["spec"]
    assert api.objects["secrets", "elasticdl-job-envs"]["data"] == secret["data"]


def test_values_of_variables_are_in_a_secret_of_the_training_job(api: ApiServer) -> None:
    api.has_training_jobs = True
    use(lambda catalog: catalog.submit(spec(envs="PASSWORD=hunter2")))
    created = api.objects["trainingjobs", "job"]
    assert "hunter2" not in json.dumps(created)
    found = job_spec_of(parse_training_job(created)).nodes
    assert (found.envs, found.secret_envs) == ({}, {"PASSWORD": "elasticdl-job-envs"})
    secret = api.objects["secrets", "elasticdl-job-envs"]
    assert secret["data"] == {"PASSWORD": base64.b64encode(b"hunter2").decode()}
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("TrainingJob", created["metadata"]["uid"])


def test_training_job_without_its_secret_is_removed(api: ApiServer) -> None:
    """The name of the Secret is taken by one without an owner."""
    api.has_training_jobs = True
    api.put("secrets", {"metadata": {"name": "elasticdl-job-envs"}, "data": {}})
    with pytest.raises(UserError, match="There is a Secret elasticdl-job-envs in namespace lab already"):
        use(lambda catalog: catalog.submit(spec(envs="PASSWORD=hunter2")))
    assert [kind for kind, _ in api.objects] == ["secrets"]


def test_missing_requests_are_named_by_their_flag() -> None:
    with pytest.raises(UserError, match="--worker_resource_request: cpu and memory are missing"):
        training_job_text(complete_spec(spec(worker_resource_request="")))


def test_training_job_has_no_account_of_its_own() -> None:
    with pytest.raises(
        UserError, match="--job_account: is not possible here: the controller may not make Roles"
    ):
        training_job_text(complete_spec(spec(job_account=True)))


def test_waiting_job_says_why(api: ApiServer) -> None:
    api.has_training_jobs = True
    use(lambda catalog: catalog.submit(spec()))
    with pytest.raises(UserError, match="Job job has not started: no controller has seen it yet"):
        with_job(lambda job: job.summary())
    conditions = [{"type": "Admitted", "status": "False"}]
    api.change(
        "trainingjobs", "job", {"status": {"message": "It needs 2 workers.", "conditions": conditions}}
    )
    start = with_job(lambda job: job.wait_until_started())
    assert start.is_waiting
    assert start.problem == "It needs 2 workers."
    assert use(lambda catalog: catalog.find("job")) is not None
    with_job(lambda job: job.delete())
    assert api.objects == {}


def test_scaling_pins_the_size_of_the_training_job(managed: ApiServer) -> None:
    def controller(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("PATCH", "trainingjobs"):
            count = managed.objects["trainingjobs", "job"]["spec"]["trainer"]["replicas"]
            managed.wants(Desired(generation=1, nodes={"worker": count}))
            managed.said(state="running", observedGeneration=1)

    managed.meanwhile = controller
    assert with_job(lambda job: job.scale(num_workers=4)) is not None
    assert managed.desired.nodes == {"worker": 4}
    with pytest.raises(UserError, match="--num_workers=11 is not between 2 and 10"):
        with_job(lambda job: job.scale(num_workers=11))
    with pytest.raises(UserError, match="its parameter servers follow the number of its workers"):
        with_job(lambda job: job.scale(num_ps=2))


def test_deletion_removes_the_training_job_before_its_record(managed: ApiServer) -> None:
    managed.said(state="stopped")
    with_job(lambda job: job.delete())
    assert managed.objects == {}
    assert [name for name, _ in managed.deletions][:2] == ["job", RECORD]
