"""Pods that go, and what the master does about each: replaces it, gives it more memory, says what it waits for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Elasticdl, Kubectl

# Goes through data that never ends.
ENDLESS = """
import time
from elasticai_api.common.data_shard_service import DataShardService
shards = DataShardService(batch_size=10, num_epochs=1, dataset_size=10**9, num_minibatches_per_shard=2)
while shard := shards.fetch_shard():
    for start in range(shard.start, shard.end, 10):
        time.sleep(0.05)
        shards.report_batch_done(10)
"""
GREEDY = """
hoard = []
while True:
    hoard.append(bytearray(8 << 20))
"""

# The machine says only in an event that it is not there.
NO_SECRET = json.dumps(
    {
        "worker_spec": {
            "volumes": [{"name": "missing", "secret": {"secretName": "no-such-secret"}}],
            "volumeMounts": [{"name": "missing", "mountPath": "/missing"}],
        }
    }
)

Submit = Callable[..., None]


@pytest.fixture
def submit(kubectl: Kubectl, elasticdl: Elasticdl) -> Submit:
    """A job of name `job` that runs one of the programs above, from a ConfigMap."""

    def train(program: str, *flags: str) -> None:
        kubectl("create", "configmap", "programs", f"--from-literal=program.py={program}")
        elasticdl.train(
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


def wish(kubectl: Kubectl, **wishes: object) -> None:
    change = {"data": {"wishes.json": json.dumps(wishes)}}
    kubectl("patch", "configmap", "elasticdl-job", "--type=merge", f"--patch={json.dumps(change)}")


def goes_on(kubectl: Kubectl) -> None:
    before = status(kubectl)["samples_done"]
    wait_until(lambda: status(kubectl)["samples_done"] > before, "the job goes on")


def test_deleted_killed_scaled_and_stopped(kubectl: Kubectl, submit: Submit) -> None:
    submit(ENDLESS, "--num_workers=2")
    for number in (0, 1):
        kubectl.wait_for_phase(f"job-edljob-worker-{number}", "Running")
    wait_until(lambda: status(kubectl).get("samples_done"), "samples are done")

    kubectl("delete", "pod", "job-edljob-worker-0", "--wait=false")
    kubectl.wait_for_phase("job-edljob-worker-2", "Running")
    goes_on(kubectl)

    # The processes of a pod see each other, but not who is whose first.
    kill = "import os, pathlib, signal\n" + (
        "for p in pathlib.Path('/proc').glob('[0-9]*'):\n"
        "    if b'elasticdl.master' in (p / 'cmdline').read_bytes() and int(p.name) != os.getpid():\n"
        "        os.kill(int(p.name), signal.SIGKILL)\n"
    ).replace("elasticdl.master", "elasticdl' b'.master")
    kubectl.attempt("exec", "elasticdl-job-master", "--", "python3", "-c", kill)
    wait_until(
        lambda: (
            kubectl.get("pod", "elasticdl-job-master")["status"]["containerStatuses"][0]["restartCount"] == 1
        ),
        "the master's container is started again",
    )
    goes_on(kubectl)
    assert kubectl.phases()["job-edljob-worker-1"] == "Running"

    wish(kubectl, num_workers=3)
    kubectl.wait_for_phase("job-edljob-worker-3", "Running")
    wish(kubectl, num_workers=3, stop="it is enough")
    kubectl.wait_for_phase("elasticdl-job-master", "Succeeded")
    assert status(kubectl)["state"] == "stopped"
    assert status(kubectl)["audit"]["rows"][0]["done"] > 0

    kubectl("delete", "configmap", "elasticdl-job")
    for kind in ("pods", "services", "secrets", "configmaps", "networkpolicies"):
        wait_until(lambda kind=kind: not kubectl.list(kind, "elasticdl-job-name=job"), f"no {kind} are left")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--worker_image=no-such-image:1",), "ErrImageNeverPull: Container image"),
        (("--worker_resource_request=cpu=1000",), "Unschedulable: 0/"),
        ((f"--cluster_spec_json={NO_SECRET}",), 'FailedMount: MountVolume.SetUp failed for volume "missing"'),
    ],
)
def test_what_keeps_a_pod_from_running_is_told(
    kubectl: Kubectl, submit: Submit, flags: tuple[str, ...], words: str
) -> None:
    submit(ENDLESS, "--num_workers=1", *flags)
    wait_until(
        lambda: any(node["message"].startswith(words) for node in status(kubectl).get("nodes", [])),
        f"the status says {words}",
    )
    assert f"worker-0 waits: {words}" in kubectl("logs", "elasticdl-job-master")


def test_more_memory_each_time_and_then_the_end(kubectl: Kubectl, submit: Submit) -> None:
    submit(
        GREEDY,
        "--num_workers=1",
        "--relaunch_on_worker_failure=2",
        "--worker_resource_request=memory=50Mi",
        "--worker_resource_limit=memory=150Mi",
    )
    kubectl.wait_for_phase("elasticdl-job-master", "Failed")
    pods = [kubectl.get("pod", f"job-edljob-worker-{number}") for number in range(3)]
    requests = [pod["spec"]["containers"][0]["resources"]["requests"]["memory"] for pod in pods]
    assert requests == ["50Mi", str(100 << 20), str(150 << 20)]
    assert {pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] for pod in pods} == {
        "OOMKilled"
    }
    assert status(kubectl)["state"] == "failed"
    assert "ran out of memory" in status(kubectl)["message"]
