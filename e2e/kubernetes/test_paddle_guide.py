"""Jobs of PaddlePaddle's Kubernetes guide: a lost pod, two jobs in one namespace, and what a user may get wrong."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.guide_images import provide_guide_images
from e2e.cluster.places import Cluster
from e2e.conftest import ROOT, wait_until
from e2e.kubernetes.conftest import Kubectl
from elasticdl.paddle_compat.cluster.data_job import DataJob
from elasticdl.paddle_compat.cluster.sources import Sizes

_REPOSITORY = "registry.example.com/team"
_SIZES = Sizes(reviews=1500, ratings=300)
_PASSES = 40
# As the guide prints it.
_PRINTED_DATA_JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: paddle-data
spec:
  template:
    metadata:
      name: pi
    spec:
      hostNetwork: true
      containers:
      - name: paddle-data
        image: paddlepaddle/paddle-tutorial:k8s_data
        imagePullPolicy: Always
        volumeMounts:
        - mountPath: "/mnt"
          name: nfs
        env:
        - name: OUT_DIR
          value: /home/work/mfs/paddle-cluster-job
        - name: SPLIT_COUNT
          value: "3"
      volumes:
        - name: nfs
          persistentVolumeClaim:
            claimName: mfs
      restartPolicy: Never
"""
Document = dict[str, Any]


@pytest.fixture
def guide_images(cluster: Cluster) -> None:
    provide_guide_images(cluster, _REPOSITORY)


def training_job(kubectl: Kubectl, folder: Path, name: str, *, nodes: int, **variables: str) -> Document:
    """The Job of the repository, in the namespace of the test."""
    job: Document = yaml.safe_load((ROOT / "paddle/k8s_train/job.yaml").read_text())
    job["metadata"]["name"] = name
    job["spec"] |= {"parallelism": nodes, "completions": nodes}
    pod = job["spec"]["template"]["spec"]
    pod["volumes"][0]["hostPath"]["path"] = str(folder)
    (container,) = pod["containers"]
    container["image"] = f"{_REPOSITORY}/paddle:mypaddle"
    values = {each["name"]: each["value"] for each in container["env"]} | {
        "JOB_NAME": name,
        "JOB_NAMESPACE": kubectl.namespace,
        "TRAIN_CONFIG_DIR": "quick_start",
        "CONF_PADDLE_GRADIENT_NUM": str(nodes),
        "TRAINER_COUNT": "1",
        "PADDLE_NUM_PASSES": str(_PASSES),
    }
    container["env"] = [{"name": key, "value": value} for key, value in (values | variables).items()]
    return job


def data_job(folder: Path, name: str) -> Document:
    """The data job of the repository, on a folder of the nodes in place of the claim."""
    job: Document = yaml.safe_load((ROOT / "paddle/k8s_data/data.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "nfs", "hostPath": {"path": str(folder)}}]
    (container,) = pod["containers"]
    container["image"] = f"{_REPOSITORY}/paddle:k8s_data"
    container["env"] = [
        {"name": "OUT_DIR", "value": f"/home/work/mfs/{name}"},
        {"name": "SPLIT_COUNT", "value": "3"},
        {"name": "DATA_REVIEWS", "value": str(_SIZES.reviews)},
        {"name": "DATA_RATINGS", "value": str(_SIZES.ratings)},
    ]
    return job


def create(kubectl: Kubectl, job: Document) -> None:
    kubectl("create", "--filename=-", text=json.dumps(job))


def wait_for_end(kubectl: Kubectl, name: str) -> Document:
    """The status of a Job that has succeeded or failed."""

    def ended() -> Document | None:
        status: Document = json.loads(kubectl("get", "job", name, "--output=json"))["status"]
        return status if any(each["status"] == "True" for each in status.get("conditions", ())) else None

    return dict(wait_until(ended, f"job {name} has come to its end"))


def pods_of(kubectl: Kubectl, name: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in kubectl.list("pods", f"job-name={name}")]


def logs_of(kubectl: Kubectl, name: str) -> str:
    return "\n".join(kubectl("logs", pod) for pod in pods_of(kubectl, name))


@pytest.mark.usefixtures("guide_images")
def test_killed_pod_resumes_from_newest_pass_and_other_job_is_undisturbed(
    kubectl: Kubectl, shared_folder: Path
) -> None:
    kubectl("apply", f"--filename={ROOT}/paddle/k8s_train/rbac.yaml")
    create(kubectl, data_job(shared_folder, "first"))
    DataJob(out_dir=shared_folder / "second", split_count=1, sizes=_SIZES).run()
    assert wait_for_end(kubectl, "paddle-data")["succeeded"] == 1
    first = training_job(kubectl, shared_folder, "first", nodes=3)
    create(kubectl, first)
    create(kubectl, training_job(kubectl, shared_folder, "second", nodes=1))

    output = shared_folder / "first" / "output"
    wait_until(lambda: (output / "pass-00003" / "done").exists(), "four passes are complete")
    began_with = pods_of(kubectl, "first")
    kubectl("delete", "pod", began_with[1], "--force", "--grace-period=0", "--wait=false")
    assert wait_for_end(kubectl, "first")["succeeded"] == 3
    assert wait_for_end(kubectl, "second")["succeeded"] == 1

    # The two others are the pods of the beginning.
    assert len({*began_with} & {*pods_of(kubectl, "first")}) == 2
    log = (output / "node_0" / "train.log").read_text()
    restored = re.search(r"Restored 2 parameters from \S+/pass-(\d+)", log)
    assert restored is not None, log
    assert int(restored[1]) >= 3
    assert passes_in(log) == sorted({*range(_PASSES)})
    costs = [float(cost) for cost in re.findall(r" AvgCost=(\S+)", log)]
    assert costs[-1] < 0.95 * costs[0]
    for number in range(3):
        assert "pserver" in (output / f"node_{number}" / "server.log").read_text()
    assert {each.name for each in (output / f"pass-{_PASSES - 1:05d}").iterdir()} == {
        "___fc_layer_0__.w0",
        "___fc_layer_0__.wbias",
        "done",
    }
    other = (shared_folder / "second" / "output" / "node_0" / "train.log").read_text()
    assert other.count("commandline:") == 1
    assert passes_in(other) == [*range(_PASSES)]

    # The same Job once more.
    kubectl("delete", "job", "first", "--wait=true")
    create(kubectl, first)
    assert wait_for_end(kubectl, "first")["succeeded"] == 3
    assert f"All {_PASSES} passes are complete" in logs_of(kubectl, "first")


def passes_in(log: str) -> list[int]:
    """Those that were saved, in the order of the log."""
    return [int(number) for number in re.findall(r"Saved \d+ parameters in \S+/pass-(\d+)", log)]


@pytest.mark.usefixtures("guide_images")
def test_mistakes_fail_the_job_and_are_explained_in_its_log(kubectl: Kubectl, shared_folder: Path) -> None:
    DataJob(out_dir=shared_folder / "ready", split_count=1, sizes=_SIZES).run()
    create(kubectl, failing(training_job(kubectl, shared_folder, "no-role", nodes=1)))
    expect_failure(kubectl, "no-role", "may not list pods", "-f paddle/k8s_train/rbac.yaml")

    kubectl("apply", f"--filename={ROOT}/paddle/k8s_train/rbac.yaml")
    claim(kubectl, shared_folder)
    printed: Document = yaml.safe_load(_PRINTED_DATA_JOB)
    (container,) = printed["spec"]["template"]["spec"]["containers"]
    # There is no registry to pull it from.
    container |= {"image": f"{_REPOSITORY}/paddle:k8s_data", "imagePullPolicy": "IfNotPresent"}
    wrong = {
        "paddle-data": printed,
        "other-number": training_job(
            kubectl, shared_folder, "other-number", nodes=1, CONF_PADDLE_GRADIENT_NUM="3"
        ),
        "no-folder": training_job(kubectl, shared_folder, "no-folder", nodes=1),
        "other-namespace": training_job(
            kubectl, shared_folder, "other-namespace", nodes=1, JOB_NAMESPACE="default"
        ),
        "no-number": training_job(kubectl, shared_folder, "no-number", nodes=1, CONF_PADDLE_PORT="http"),
        "ready": training_job(
            kubectl, shared_folder, "ready", nodes=1, PADDLE_TRAIN_CONFIG="./trainer_config.cnn.py"
        ),
    }
    for job in wrong.values():
        create(kubectl, failing(job))
    try:
        expect_failure(
            kubectl, "paddle-data", "is on no volume", "mounted at /mnt", "mountPath: /home/work/mfs"
        )
        expect_failure(
            kubectl, "other-number", "CONF_PADDLE_GRADIENT_NUM is 3, but the Job's parallelism is 1"
        )
        expect_failure(
            kubectl,
            "other-namespace",
            f"JOB_NAMESPACE is default, but this pod is in namespace {kubectl.namespace}",
        )
        expect_failure(kubectl, "no-folder", "There is no folder /home/jobpath/no-folder", "Run the data job")
        expect_failure(kubectl, "no-number", "CONF_PADDLE_PORT must be a whole number", "(the guide: 7164)")
        expect_failure(kubectl, "ready", "no configuration ./trainer_config.cnn.py", "trainer_config.lr.py")
    finally:
        kubectl("delete", "persistentvolume", kubectl.namespace, "--wait=false")


@pytest.mark.usefixtures("guide_images")
def test_image_of_each_tool_has_the_paddle_command(kubectl: Kubectl, shared_folder: Path) -> None:
    tags = {"buildah": "mypaddle", "podman": "mypaddle-podman"}
    for tool, tag in tags.items():
        job = training_job(kubectl, shared_folder, tool, nodes=1)
        # The path of the shell is as the guide prints it.
        changes = {"image": f"{_REPOSITORY}/paddle:{tag}", "command": ["bin/bash", "-c", "paddle version"]}
        job["spec"]["template"]["spec"]["containers"][0] |= changes
        create(kubectl, job)
    for tool in tags:
        assert wait_for_end(kubectl, tool)["succeeded"] == 1
        assert "PaddlePaddle 2.6.2, commands of the Kubernetes guide" in logs_of(kubectl, tool)


def failing(job: Document) -> Document:
    """Without other attempts."""
    changed = copy.deepcopy(job)
    changed["spec"]["backoffLimit"] = 0
    return changed


def expect_failure(kubectl: Kubectl, name: str, *words: str) -> None:
    assert wait_for_end(kubectl, name)["failed"] == 1
    log = logs_of(kubectl, name)
    assert "Traceback" not in log
    for each in words:
        assert each in log
    (pod,) = kubectl.list("pods", f"job-name={name}")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 2


def claim(kubectl: Kubectl, folder: Path) -> None:
    """The claim `mfs` of the namespace. Volumes are those of the whole cluster, so this one is named after it."""
    volume, wanted = yaml.safe_load_all((ROOT / "paddle/k8s_data/volume.yaml").read_text())
    volume["metadata"]["name"] = wanted["spec"]["volumeName"] = kubectl.namespace
    volume["spec"]["claimRef"]["namespace"] = kubectl.namespace
    volume["spec"]["hostPath"]["path"] = str(folder)
    create(kubectl, volume)
    create(kubectl, wanted)
