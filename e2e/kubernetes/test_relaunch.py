"""Pods that go, and what the master does about each: replaces it, gives it more memory, says what it waits for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from e2e.conftest import DEADLINE, wait_until
from e2e.kubernetes.conftest import Elasticdl, Kubectl

# Goes through data that never ends.
ENDLESS = """
import time
print("hello", flush=True)
from elasticai_api.common.data_shard_service import DataShardService
shards = DataShardService(batch_size=10, num_epochs=1, dataset_size=10**9, num_minibatches_per_shard=2)
while shard := shards.fetch_shard():
    for start in range(shard.start, shard.end, 10):
        time.sleep(0.05)
        shards.report_batch_done(10)
"""
# Needs more memory than it gets at first, and then does its work.
HUNGRY = """
hoard = bytearray(100 << 20)
from elasticai_api.common.data_shard_service import DataShardService
shards = DataShardService(batch_size=10, num_epochs=1, dataset_size=100, num_minibatches_per_shard=2)
while shard := shards.fetch_shard():
    shards.report_batch_done(shard.end - shard.start)
"""
# Ends by its own fault.
FAULTY = """
import sys
print("the last output of this program", flush=True)
sys.exit(3)
"""
GREEDY = """
hoard = []
while True:
    hoard.append(bytearray(8 << 20))
"""


def without(kind: dict[str, Any]) -> dict[str, Any]:
    """A pod with a volume that is not there, which its machine says only in an event."""
    return {
        "volumes": [{"name": "missing", **kind}],
        "volumeMounts": [{"name": "missing", "mountPath": "/missing"}],
    }


# What is in the way of a pod of each role, and its message.
TROUBLES = {
    "ps-0": "ErrImageNeverPull: Container image",
    "worker-0": "Unschedulable: 0/",
    "chief-0": 'FailedMount: MountVolume.SetUp failed for volume "missing" : secret "no-such-secret" not found',
    "evaluator-0": 'FailedMount: MountVolume.SetUp failed for volume "missing" : configmap "no-such-map" not found',
}

Submit = Callable[..., str]


@pytest.fixture
def submit(kubectl: Kubectl, elasticdl: Elasticdl) -> Submit:
    """A job of name `job` that runs one of the programs above, from a ConfigMap."""

    def train(program: str, *flags: str) -> str:
        kubectl("create", "configmap", "programs", f"--from-literal=program.py={program}")
        return elasticdl.train(
            "--job_name=job",
            "--image_name=elasticdl-test:light",
            "--image_pull_policy=Never",
            "--job_command=python3 /programs/program.py",
            "--volume=config_map=programs,mount_path=/programs",
            *flags,
        )

    return train


def status(kubectl: Kubectl) -> dict[str, Any]:
    data = kubectl.get("configmap", "elasticdl-job")["data"]
    return dict(json.loads(data.get("status.json", "{}")))


def goes_on(kubectl: Kubectl) -> None:
    before = status(kubectl)["samples_done"]
    wait_until(lambda: status(kubectl)["samples_done"] > before, "the job goes on")


def test_deleted_evicted_scaled_and_stopped(kubectl: Kubectl, elasticdl: Elasticdl, submit: Submit) -> None:
    # None of it is the program's fault.
    submit(
        ENDLESS, "--num_workers=2", "--relaunch_on_worker_failure=0", "--worker_resource_request=disk=20Mi"
    )
    for number in (0, 1):
        kubectl.wait_for_phase(f"job-edljob-worker-{number}", "Running")
    wait_until(lambda: status(kubectl).get("samples_done"), "samples are done")

    kubectl("delete", "pod", "job-edljob-worker-0", "--wait=false")
    kubectl.wait_for_phase("job-edljob-worker-2", "Running")
    goes_on(kubectl)

    # The kubelet evicts a pod that exceeds its limit of ephemeral storage.
    fill = "open('/tmp/much', 'wb').write(bytes(60 << 20))"
    kubectl("exec", "job-edljob-worker-1", "--", "python3", "-c", fill)
    kubectl.wait_for_phase("job-edljob-worker-3", "Running")
    assert kubectl.get("pod", "job-edljob-worker-1")["status"]["reason"] == "Evicted"
    goes_on(kubectl)

    followed = elasticdl.begin("jobs", "logs", "job", "-f", f"--namespace={kubectl.namespace}")
    assert "goes from 2 to 3 workers" in elasticdl.jobs("scale", "job", "--num_workers=3")
    kubectl.wait_for_phase("job-edljob-worker-4", "Running")
    wait_until(lambda: "hello" in kubectl("logs", "job-edljob-worker-4"), "the new worker says something")
    assert "stopped" in elasticdl.jobs("stop", "job")
    kubectl.wait_for_phase("elasticdl-job-master", "Succeeded")
    assert status(kubectl)["state"] == "stopped"
    assert status(kubectl)["audit"]["rows"][0]["done"] > 0
    # To the end of the job, of those too that came later.
    lines, _ = followed.communicate(timeout=DEADLINE)
    assert "master: " in lines
    assert "The job has stopped." in lines
    assert {"worker-2: hello", "worker-3: hello", "worker-4: hello"} <= {*lines.splitlines()}

    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []


def test_obstacles_of_pods_are_reported(kubectl: Kubectl, elasticdl: Elasticdl, submit: Submit) -> None:
    fields = {
        "chief_spec": without({"secret": {"secretName": "no-such-secret"}}),
        "evaluator_spec": without({"configMap": {"name": "no-such-map"}}),
    }
    submit(
        ENDLESS,
        *("--num_workers=1", "--num_ps=1", "--num_chief=1", "--num_evaluator=1"),
        "--ps_image=no-such-image:1",
        # No machine of the tests has one.
        "--worker_resource_request=gpu=1",
        f"--cluster_spec_json={json.dumps(fields)}",
    )

    def is_reported() -> bool:
        messages = {node["name"]: node["message"] for node in status(kubectl).get("nodes", [])}
        return all(messages.get(node, "").startswith(words) for node, words in TROUBLES.items())

    wait_until(is_reported, f"the status says {TROUBLES}")
    log = kubectl("logs", "elasticdl-job-master")
    for node, words in TROUBLES.items():
        assert f"{node} waits: {words}" in log
    assert "Insufficient nvidia.com/gpu" in log
    shown = elasticdl.jobs("status", "job")
    assert 'configmap "no-such-map" not found' in shown
    # Whatever the job has is its record's, and goes with it, running or not.
    kubectl("delete", "configmap", "elasticdl-job")
    wait_until(lambda: kubectl.left_of("job") == [], "nothing is left of it")


def test_obstacle_of_the_master_is_reported_by_the_command(
    kubectl: Kubectl, elasticdl: Elasticdl, submit: Submit
) -> None:
    said = submit(ENDLESS, "--volume=claim_name=no-such-claim,mount_path=/data")
    assert "The master of job job has not started: Unschedulable: " in said
    assert 'persistentvolumeclaim "no-such-claim" not found' in said
    assert "stopped" in elasticdl.jobs("stop", "job")
    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []


def test_crash_looping_master_is_reported_and_can_be_stopped(kubectl: Kubectl, elasticdl: Elasticdl) -> None:
    flags = ("--job_name=job", "--image_name=elasticdl-test:light", "--image_pull_policy=Never")
    # Its Python does not find itself; the master's does not either.
    broken = ("--job_command=true", "--envs=PYTHONHOME=/nowhere")
    done = elasticdl("train", f"--namespace={kubectl.namespace}", *flags, *broken)
    assert done.returncode == 1
    assert "The master of job job has not started: it has ended: exit code 1" in done.stdout
    assert "No module named 'encodings'" in done.stdout
    assert "starting. The master: it has ended (exit code 1" in elasticdl.jobs("status", "job")
    assert "stopped" in elasticdl.jobs("stop", "job")
    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []


def test_a_program_that_fails_is_tried_again_as_often_as_the_flag_says(
    kubectl: Kubectl, elasticdl: Elasticdl, submit: Submit
) -> None:
    submit(FAULTY, "--num_workers=1", "--relaunch_on_worker_failure=2")
    kubectl.wait_for_phase("elasticdl-job-master", "Failed")
    workers = {f"job-edljob-worker-{number}": "Failed" for number in range(3)}
    assert kubectl.phases("elasticdl-replica-type=worker") == workers
    assert status(kubectl)["state"] == "failed"
    assert "worker-2" in status(kubectl)["message"]
    assert "exit code 3" in status(kubectl)["message"]
    assert "the last output of this program" in elasticdl.jobs("status", "job")
    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []


def test_a_program_that_is_not_in_the_image(kubectl: Kubectl, elasticdl: Elasticdl, submit: Submit) -> None:
    submit(FAULTY, "--num_workers=1", "--job_command=no-such-program --fast")
    kubectl.wait_for_phase("elasticdl-job-master", "Failed")
    assert "no-such-program" in status(kubectl)["message"]
    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []


def tries(kubectl: Kubectl) -> list[tuple[str, str]]:
    """What each of three workers might use of memory, and how it ended."""
    pods = [kubectl.get("pod", f"job-edljob-worker-{number}") for number in range(3)]
    containers = [pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in pods]
    ends = [pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] for pod in pods]
    return list(zip(containers, ends, strict=True))


def test_more_memory_each_time_until_it_is_enough(
    kubectl: Kubectl, elasticdl: Elasticdl, submit: Submit
) -> None:
    submit(
        HUNGRY,
        "--num_workers=1",
        # That it had less than it may have is no failure of the program's.
        "--relaunch_on_worker_failure=0",
        "--worker_resource_request=memory=50Mi",
        "--worker_resource_limit=memory=300Mi",
    )
    kubectl.wait_for_phase("elasticdl-job-master", "Succeeded")
    assert tries(kubectl) == [("50Mi", "OOMKilled"), ("100Mi", "OOMKilled"), ("200Mi", "Completed")]
    assert status(kubectl)["audit"]["exact"]
    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []


def test_relaunch_after_oom_grows_memory_up_to_limit(
    kubectl: Kubectl, elasticdl: Elasticdl, submit: Submit
) -> None:
    submit(
        GREEDY,
        "--num_workers=1",
        "--relaunch_on_worker_failure=0",
        "--worker_resource_request=memory=50Mi",
        "--worker_resource_limit=memory=150Mi",
    )
    kubectl.wait_for_phase("elasticdl-job-master", "Failed")
    assert tries(kubectl) == [("50Mi", "OOMKilled"), ("100Mi", "OOMKilled"), ("150Mi", "OOMKilled")]
    assert status(kubectl)["state"] == "failed"
    assert "worker-2 ran out of memory" in status(kubectl)["message"]
    assert "killed at its limit of 150Mi; raise --worker_resource_limit" in status(kubectl)["message"]
    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []
