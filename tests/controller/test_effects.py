"""Actions carried out against a fake API server: what is written, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.controller.effects import LEADER_GENERATION, Effects
from elasticdl.controller.reconcile.actions import (
    Action,
    DeletePod,
    EmitEvent,
    StartJob,
    StartMaster,
    WriteDesired,
    WriteStatus,
)
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import parse_training_job
from elasticdl.jobs.training_job.resource import TrainingJob
from elasticdl.jobs.training_job.status import TrainingJobPhase, TrainingJobStatus
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import find_access
from tests.catalog.api_server import FAST, MASTER, NAMESPACE, RECORD, ApiServer
from tests.controller.builders import training_job
from tests.platforms.kubernetes.scripted_server import HANG_UP, Reply, play, refusal

Run = Callable[..., bool]


@pytest.fixture
def job(api: ApiServer) -> TrainingJob:
    return parse_training_job(api.put("trainingjobs", training_job("job", namespace=NAMESPACE)))


@pytest.fixture
def run(api: ApiServer, tmp_path: Path) -> Run:
    """Carries out actions as a leader of generation 5."""
    path = api.kubeconfig(tmp_path / "config")

    def carry_out(*actions: Action, is_leader: bool = True) -> bool:
        async def work() -> bool:
            access = find_access(environment={"KUBECONFIG": str(path)})
            async with Cluster(access, patience=1.0) as cluster:
                effects = Effects(cluster, generation=lambda: 5, is_leader=lambda: is_leader, timing=FAST)
                return await effects.carry_out(actions)

        return asyncio.run(work())

    return carry_out


def test_started_job_is_owned_by_its_training_job(api: ApiServer, job: TrainingJob, run: Run) -> None:
    assert run(StartJob(job=job, spec=job_spec_of(job), started_from={}))
    [owner] = api.objects["configmaps", RECORD]["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["uid"]) == ("elasticdl.org/v1", "TrainingJob", job.uid)
    record_uid = api.objects["configmaps", RECORD]["metadata"]["uid"]
    assert api.objects["pods", MASTER]["metadata"]["ownerReferences"][0]["uid"] == record_uid


def test_job_whose_record_is_there_is_not_started_again(api: ApiServer, job: TrainingJob, run: Run) -> None:
    spec = job_spec_of(job)
    assert run(StartJob(job=job, spec=spec, started_from={}))
    event = EmitEvent(job=job, reason="Admit", message="It starts.")
    assert not run(StartJob(job=job, spec=spec, started_from={}), event)
    assert not [kind for kind, _ in api.objects if kind == "events"]


def test_missing_master_is_created_and_the_secret_stays(api: ApiServer, job: TrainingJob, run: Run) -> None:
    spec = job_spec_of(job)
    run(StartJob(job=job, spec=spec, started_from={}))
    secret = api.objects["secrets", RECORD]
    del api.objects["pods", MASTER]
    assert run(StartMaster(job=job, record=api.objects["configmaps", RECORD], spec=spec))
    assert ("pods", MASTER) in api.objects
    assert api.objects["secrets", RECORD] == secret


def test_desired_state_is_written_with_the_generation_of_the_leader(
    api: ApiServer, job: TrainingJob, run: Run
) -> None:
    api.submitted()
    record = api.objects["configmaps", RECORD]
    assert run(WriteDesired(job=job, record=record, desired=Desired().with_nodes({"worker": 2})))
    assert api.desired.nodes == {"worker": 2}
    assert api.objects["configmaps", RECORD]["metadata"]["annotations"] == {LEADER_GENERATION: "5"}


def test_deposed_leader_writes_no_desired_state(api: ApiServer, job: TrainingJob, run: Run) -> None:
    api.submitted()
    record = api.change("configmaps", RECORD, {"metadata": {"annotations": {LEADER_GENERATION: "6"}}})
    assert not run(WriteDesired(job=job, record=record, desired=Desired().with_nodes({"worker": 2})))
    assert api.desired == Desired()


def test_desired_state_is_not_written_over_a_change(api: ApiServer, job: TrainingJob, run: Run) -> None:
    api.submitted()
    record = api.objects["configmaps", RECORD]
    api.said(state="running")
    assert not run(WriteDesired(job=job, record=record, desired=Desired().with_nodes({"worker": 2})))
    assert api.desired == Desired()


def test_status_is_written_only_for_the_version_that_was_seen(
    api: ApiServer, job: TrainingJob, run: Run
) -> None:
    write = WriteStatus(job=job, status=TrainingJobStatus(phase=TrainingJobPhase.RUNNING))
    assert run(write)
    assert api.objects["trainingjobs", "job"]["status"]["phase"] == "Running"
    assert not run(write)


def test_event_names_its_training_job(api: ApiServer, job: TrainingJob, run: Run) -> None:
    assert run(EmitEvent(job=job, reason="Grow", message="Grows from 1 to 2.", is_warning=False))
    [event] = [document for (kind, _), document in api.objects.items() if kind == "events"]
    assert event["involvedObject"]["uid"] == job.uid
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Grow", "Grows from 1 to 2.")


def test_pod_of_another_uid_is_not_deleted(api: ApiServer, job: TrainingJob, run: Run) -> None:
    api.submitted()
    run(DeletePod(job=job, name=MASTER, uid="of an earlier pod", reason="it has ended"))
    assert ("pods", MASTER) in api.objects
    uid = api.objects["pods", MASTER]["metadata"]["uid"]
    run(DeletePod(job=job, name=MASTER, uid=uid, reason="it has ended"))
    assert ("pods", MASTER) not in api.objects


def test_controller_that_does_not_lead_does_nothing(api: ApiServer, job: TrainingJob, run: Run) -> None:
    assert not run(StartJob(job=job, spec=job_spec_of(job), started_from={}), is_leader=False)
    assert ("configmaps", RECORD) not in api.objects


Refused = tuple[bool, list[str], int]


def refused(job: TrainingJob, action: Action, reply: Reply) -> Refused:
    """Whether an action succeeds that is answered so, what is reported of it, and how many requests it takes. There is
    another one behind it.
    """
    found: list[bool] = []
    failures: list[str] = []

    async def scenario(cluster: Cluster) -> None:
        effects = Effects(
            cluster,
            generation=lambda: 5,
            is_leader=lambda: True,
            on_failure=lambda action, error: failures.append(f"{type(error).__name__}: {error}"),
        )
        found.append(await effects.carry_out([action, DeletePod(job=job, name="p", uid="u", reason="over")]))

    asked = play([reply] * 9, scenario, patience=0.2)
    assert all(path == asked[0][1] for _, path, _ in asked)
    return found[0], failures, len(asked)


def test_conflict_drops_the_rest_and_is_no_failure(job: TrainingJob) -> None:
    conflict = refusal(409, "Conflict", "the object has been modified")
    write = WriteStatus(job=job, status=TrainingJobStatus())
    assert refused(job, write, conflict) == (False, [], 1)


def test_missing_right_is_reported_with_the_request_that_was_refused(job: TrainingJob) -> None:
    words = 'trainingjobs "job" is forbidden: User "edl" cannot update resource "trainingjobs/status"'
    write = WriteStatus(job=job, status=TrainingJobStatus())
    is_done, [failure], requests = refused(job, write, refusal(403, "Forbidden", words))
    assert (is_done, requests) == (False, 1)
    assert words in failure


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (refusal(429, "TooManyRequests", "slow down", Retry_After="0"), "ClusterAway"),
        (refusal(500, "InternalError", "etcd leader changed"), "ClusterError"),
        (refusal(503, "ServiceUnavailable", "starting"), "ClusterAway"),
        (HANG_UP, "ClusterAway"),
    ],
    ids=["429", "500", "503", "nothing"],
)
def test_server_in_trouble_is_reported_when_patience_is_used_up(
    job: TrainingJob, reply: Reply, error: str
) -> None:
    write = WriteStatus(job=job, status=TrainingJobStatus())
    is_done, [failure], _ = refused(job, write, reply)
    assert not is_done
    assert failure.startswith(error)
