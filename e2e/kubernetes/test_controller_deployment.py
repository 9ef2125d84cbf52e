"""The controller from its manifest: two replicas, one of which leads, with the rights that it needs and no more, and
the dashboard that both serve.

That the other one takes over when the leader is killed is shown in `test_controller_chaos.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Kubectl, own_namespace
from e2e.kubernetes.controller import IMAGE, NAME, installed_controller, log_of, pods, wait_for_leader
from e2e.kubernetes.dashboard import User, pages

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


def test_webhook_refuses_what_cannot_be_run_and_users_see_what_they_may(
    controller: Kubectl, kubectl: Kubectl
) -> None:
    """One test, as each installs the controller."""
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

    with own_namespace() as other:
        check_dashboard(controller, kubectl, other)
    check_actions(controller, kubectl)
    kubectl("delete", "tj", "running")
    wait_until(lambda: not kubectl.left_of("running"), "everything of the job is gone")


def check_dashboard(controller: Kubectl, kubectl: Kubectl, other: Kubectl) -> None:
    """A user with rights in one namespace, in which a job runs; in the other one, a job waits."""
    large = training_job("large")
    large["spec"]["trainer"]["resources"] = {"requests": {"cpu": "1000", "memory": "128Mi"}}
    other("create", "--filename=-", text=json.dumps(large))
    wait_until(lambda: status_of(other, "large").get("phase") == "Pending", "the other job waits")
    user = User.created(kubectl, "user")
    user.grant("see-jobs", verbs="get,list", resources="trainingjobs.elasticdl.org")
    admin = User.created(kubectl, "admin")
    # Not more than the page needs: nodes, pods and TrainingJobs of both groups.
    resources = "nodes,pods,trainingjobs.elasticdl.org,trainingjobs.paddlepaddle.org"
    here, there = f"{kubectl.namespace}/running", f"{other.namespace}/large"
    running, large_page = (
        f"/api/jobs/{name}?namespace={namespace}"
        for name, namespace in (("running", kubectl.namespace), ("large", other.namespace))
    )
    with (
        pages(controller, pods(controller)) as replicas,
        admin.granted_everywhere("see-cluster", verbs="list", resources=resources),
    ):
        assert len(replicas) == 2
        for page in replicas:
            assert page.get("/").status_code == 200, "the files of the page are no secret"
            for path in ("/api/jobs", "/api/stream", running, "/api/cluster", "/api/metrics"):
                assert page.get(path).status_code == 401
            # Until reviews that were remembered before the roles are asked for again.
            wait_until(lambda page=page: page.jobs(user) == {here}, "the user sees one namespace")
            head = page.get(running, user).json()["head"]
            assert head["state"] == "running"
            assert page.get(large_page, user).status_code == 403
            assert page.get("/api/cluster", user).status_code == 403
            assert page.jobs(admin) >= {here, there}
            refused = page.post(f"/api/jobs/running/actions/stop?namespace={kubectl.namespace}", user)
            assert "Actions are disabled" in refused.text
            cluster = page.get("/api/cluster", admin).json()
            assert cluster["summary"]["machines"] == sum(each.startswith("machine/") for each in cluster)
            [waiting] = [each for each in cluster["queue"] if each["namespace"] == other.namespace]
            assert waiting["job"] == "large"
            assert "cpu" in waiting["reason"]
            decided = [each for each in cluster["decisions"] if each["namespace"] == kubectl.namespace]
            assert decided
            assert all(each["sentence"] for each in decided)
        first, second = replicas
        cookie = first.post("/api/session", user).headers["Set-Cookie"].partition(";")[0]
        assert second.get("/api/jobs", Cookie=cookie).status_code == 200, "a session is of both replicas"
    assert "forbidden" not in logs(controller).lower()


def check_actions(controller: Kubectl, kubectl: Kubectl) -> None:
    """They need the flag, and the rights of the user."""
    flag = [{"op": "add", "path": "/spec/template/spec/containers/0/command/-", "value": "--allow_actions"}]
    controller("patch", f"deployment/{NAME}", "--type=json", f"--patch={json.dumps(flag)}")
    controller("rollout", "status", f"deployment/{NAME}", "--timeout=90s")
    reader, editor = User.created(kubectl, "reader"), User.created(kubectl, "editor")
    resources = "configmaps,trainingjobs.elasticdl.org,trainingjobs.paddlepaddle.org"
    reader.grant("read-jobs", verbs="get,list", resources=resources)
    editor.grant("edit-jobs", verbs="get,list,patch", resources=f"{resources},pods")
    path = f"/api/jobs/running/actions/scale?namespace={kubectl.namespace}"
    with pages(controller, [wait_for_leader(controller)]) as [page]:
        refused = page.post(path, reader, {"num_workers": 1})
        assert refused.status_code == 403
        assert "may not patch configmaps" in refused.text
        assert trainer_of(kubectl, "running")["replicas"] == 0, "nothing has changed"
        scaled = page.post(path, editor, {"num_workers": 1})
        assert scaled.status_code == 200, scaled.text
    assert trainer_of(kubectl, "running")["replicas"] == 1


def trainer_of(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", "tj", name, "--output=json"))
    return dict(found["spec"]["trainer"])
