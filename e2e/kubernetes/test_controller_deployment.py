"""The controller from its manifest: two replicas, one of which leads, with the rights that it needs and no more.

That the other one takes over when the leader is killed is shown in `test_controller_chaos.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Kubectl
from e2e.kubernetes.controller import IMAGE, installed_controller, log_of, pods, wait_for_leader

PROGRAM = """
from elasticai_api.common.data_shard_service import DataShardService
shards = DataShardService(batch_size=10, num_epochs=1, dataset_size=200, num_minibatches_per_shard=2)
while shard := shards.fetch_shard():
    for start in range(shard.start, shard.end, 10):
        shards.report_batch_done(10)
"""


@pytest.fixture
def controller(cluster: object, alone: None) -> Iterator[Kubectl]:
    with installed_controller() as kubectl:
        yield kubectl


def training_job(name: str) -> dict[str, Any]:
    requests = {"requests": {"cpu": "200m", "memory": "128Mi"}}
    return {
        "apiVersion": "elasticdl.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "image": IMAGE,
            "fault_tolerant": True,
            "trainer": {
                "entrypoint": "python3 /programs/program.py",
                "min-instance": 1,
                "max-instance": 2,
                "resources": requests,
            },
            "master": {"resources": requests},
            "volumes": [{"name": "programs", "configMap": {"name": "programs"}}],
            "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
        },
    }


def status_of(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", "tj", name, "--output=json"))
    return dict(found.get("status") or {})


def logs(controller: Kubectl) -> str:
    return "".join(log_of(controller, pod) for pod in pods(controller))


def test_controller_of_the_manifest_runs_a_job_to_its_end(controller: Kubectl, kubectl: Kubectl) -> None:
    first = wait_for_leader(controller)
    assert len(pods(controller)) == 2
    wait_until(lambda: "Cluster resources: NodeCount:" in log_of(controller, first), "resources are logged")
    path = f"/api/v1/namespaces/{controller.namespace}/services/training-job-controller:metrics/proxy/metrics"
    allocatable = 'elasticdl_cluster_allocatable{resource="cpu",unit="core"}'
    wait_until(lambda: allocatable in controller("get", "--raw", path), "the metrics show the resources")
    kubectl("create", "configmap", "programs", f"--from-literal=program.py={PROGRAM}")
    kubectl("create", "--filename=-", text=json.dumps(training_job("job")))
    wait_until(lambda: status_of(kubectl, "job").get("phase") == "Succeeded", "the job has ended")
    audit = status_of(kubectl, "job")["audit"]
    assert audit, "the final account stays in the status"
    assert "forbidden" not in logs(controller).lower()
    assert "Traceback" not in logs(controller)
    kubectl("delete", "tj", "job")
    wait_until(lambda: not kubectl.left_of("job"), "everything of the job is gone")


def test_webhook_refuses_what_cannot_be_run(controller: Kubectl, kubectl: Kubectl) -> None:
    configuration = "validatingwebhookconfiguration/training-job-controller"
    bundle = "--output=jsonpath={.webhooks[0].clientConfig.caBundle}"
    wait_until(lambda: controller("get", configuration, bundle), "the leader has registered the authority")

    def refusal(document: dict[str, Any], *words: str) -> str:
        refused = kubectl.attempt(*(words or ("create",)), "--filename=-", text=json.dumps(document))
        return refused.stderr if refused.returncode else ""

    wrong = training_job("wrong")
    wrong["spec"]["trainer"]["min-instance"] = 3
    # A replica may not have loaded the certificate yet: then the job is stored, and its status says the same.
    wait_until(lambda: "denied" in refusal(wrong, "replace", "--force"), "the webhook answers")
    assert "spec.trainer.min-instance: 3 is more than max-instance, 2." in refusal(wrong)
    kubectl("delete", "tj", "wrong", "--ignore-not-found")

    kubectl("create", "configmap", "programs", "--from-literal=program.py=import time; time.sleep(600)")
    running = training_job("running")
    kubectl("create", "--filename=-", text=json.dumps(running))
    wait_until(lambda: status_of(kubectl, "running").get("phase") == "Running", "the job runs")
    edit = json.dumps({"spec": {"image": "another:1"}})
    refused = kubectl.attempt("patch", "tj", "running", "--type=merge", f"--patch={edit}")
    assert "spec.image: cannot be changed once the job has started" in refused.stderr
    kubectl("scale", "tj/running", "--replicas=1")
    kubectl("delete", "tj", "running")
    wait_until(lambda: not kubectl.left_of("running"), "everything of the job is gone")
