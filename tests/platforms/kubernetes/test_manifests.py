"""The Kubernetes objects of a job: names, labels, and each pod's permissions, mounts and environment."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.jobs.spec import JobSpec, from_yaml
from elasticdl.platforms.kubernetes import manifests, naming
from elasticdl.platforms.kubernetes.credentials import Credentials
from elasticdl.platforms.kubernetes.pods.manifest import NO_NOTICE, NOTICE_SECONDS, master_pod, node_pod
from elasticdl.platforms.platform import NodeRequest

CREDENTIALS = Credentials(token="t", ca_crt="ca", tls_crt="crt", tls_key="key")
OWNER = {"kind": "ConfigMap", "metadata": {"name": "elasticdl-mnist", "uid": "1-2-3"}}


def job(**flags: Any) -> JobSpec:
    given = {
        "job_name": "mnist",
        "image_name": "registry/team/mnist:1",
        "namespace": "lab",
        **({} if "job_command" in flags else {"model_zoo": "z", "model_def": "a.b.c", "training_data": "/d"}),
        **flags,
    }
    return JobSpec.build(**given)


def worker(name: str = "worker-0", **fields: Any) -> NodeRequest:
    role = name.rpartition("-")[0]
    return NodeRequest(name=name, role=role, command=("python3", "-m", f"elasticdl.{role}"), **fields)


def container(pod: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = pod["spec"]["containers"][0]
    return first


def variables(pod: dict[str, Any]) -> dict[str, Any]:
    return {v["name"]: v.get("value", v.get("valueFrom")) for v in container(pod)["env"]}


def test_everything_that_is_submitted() -> None:
    spec = job()
    documents = manifests.manifests(spec, CREDENTIALS)
    assert [(d["kind"], d["metadata"]["name"]) for d in documents] == [
        ("ConfigMap", "elasticdl-mnist"),
        ("Secret", "elasticdl-mnist"),
        ("NetworkPolicy", "elasticdl-mnist"),
        ("NetworkPolicy", "elasticdl-mnist-api"),
        ("Service", "elasticdl-mnist-master"),
        ("Pod", "elasticdl-mnist-master"),
    ]
    for document in documents:
        assert document["metadata"]["namespace"] == "lab"
        assert document["metadata"]["labels"]["app"] == "elasticdl"
        assert document["metadata"]["labels"]["elasticdl-job-name"] == "mnist"
    assert from_yaml(documents[0]["data"]["spec.yaml"]) == spec
    assert base64.b64decode(documents[1]["data"]["tls.key"]) == b"key"
    assert yaml.safe_load_all(yaml.safe_dump_all(documents))


def test_all_is_owned_by_the_job() -> None:
    (reference,) = manifests.owned(manifests.master_service(job()), OWNER)["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("ConfigMap", "1-2-3")
    assert (reference["controller"], reference["blockOwnerDeletion"]) == (True, False)
    assert node_pod(job(), worker(), owner=OWNER)["metadata"]["ownerReferences"] == [reference]


@pytest.mark.parametrize(
    ("flags", "name"),
    [({}, "elasticdl-mnist-worker-3"), ({"job_command": "python run.py"}, "mnist-edljob-worker-3")],
)
def test_pod_has_name_and_labels_of_its_node(flags: dict[str, str], name: str) -> None:
    pod = node_pod(job(**flags), worker("worker-3", place=1))
    assert pod["metadata"]["name"] == name
    assert pod["metadata"]["labels"] == {
        "app": "elasticdl",
        "elasticdl-job-name": "mnist",
        "elasticdl-replica-type": "worker",
        "elasticdl-replica-index": "3",
        "elasticdl-place": "worker-1",
    }
    assert naming.node_of(pod) == "worker-3"


def test_the_longest_job_name_makes_names_for_services() -> None:
    spec = job(job_name="j" * 50, job_command="python run.py")
    names = {naming.place_service_name(spec, "evaluator", place) for place in range(20)}
    names |= {naming.master_service_name(spec.job_name)}
    assert len(names) == 21
    assert all(len(name) <= 63 for name in names)


@pytest.mark.parametrize(
    "pod", [master_pod(job()), node_pod(job(), worker()), node_pod(job(), worker("ps-0"))]
)
def test_no_pod_has_more_rights_than_it_needs(pod: dict[str, Any]) -> None:
    context, own = pod["spec"]["securityContext"], container(pod)["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 1000)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    master = pod["metadata"]["name"] == "elasticdl-mnist-master"
    assert pod["spec"]["automountServiceAccountToken"] is master
    assert pod["spec"].get("serviceAccountName") == ("elasticdl" if master else None)
    assert pod["spec"]["restartPolicy"] == ("OnFailure" if master else "Never")


@pytest.mark.parametrize(
    ("pod", "keys"),
    [
        (master_pod(job()), ["token", "ca.crt", "tls.crt", "tls.key"]),
        (node_pod(job(), worker("ps-0")), ["token", "ca.crt", "tls.crt", "tls.key"]),
        (node_pod(job(), worker()), ["token", "ca.crt"]),
        (node_pod(job(job_command="python p.py", num_ps=1), worker("ps-0")), ["token", "ca.crt"]),
    ],
)
def test_only_serving_pods_mount_the_private_key(pod: dict[str, Any], keys: list[str]) -> None:
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "secret"]
    assert [item["key"] for item in volume["secret"]["items"]] == keys


def test_the_images_of_roles() -> None:
    spec = job(job_command="python p.py", worker_image="w:1", ps_image="p:1")
    images = {
        role: container(node_pod(spec, worker(f"{role}-0")))["image"] for role in ("ps", "worker", "chief")
    }
    assert images == {"ps": "p:1", "worker": "w:1", "chief": "w:1"}
    assert container(master_pod(spec))["image"] == "registry/team/mnist:1"


def test_resources_and_limits() -> None:
    spec = job(worker_resource_request="cpu=0.5,memory=1Gi,gpu=1", worker_resource_limit="memory=3Gi")
    resources = container(node_pod(spec, worker()))["resources"]
    assert resources["requests"] == {"cpu": "0.5", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert resources["limits"] == {"cpu": "0.5", "memory": "1Gi", "nvidia.com/gpu": "1"}


def test_cpu_of_the_master_is_limited_only_if_asked_for() -> None:
    requested = job(master_resource_request="cpu=10m,memory=512Mi")
    assert container(master_pod(requested))["resources"] == {
        "requests": {"cpu": "10m", "memory": "512Mi"},
        "limits": {"memory": "512Mi"},
    }
    limited = job(master_resource_request="cpu=10m", master_resource_limit="cpu=1")
    assert container(master_pod(limited))["resources"]["limits"]["cpu"] == "1"


def memory(pod: dict[str, Any]) -> tuple[str | None, str | None]:
    resources = container(pod)["resources"]
    return resources["requests"].get("memory"), resources["limits"].get("memory")


@pytest.mark.parametrize(("times", "amount"), [(0, "1Gi"), (1, "2048Mi"), (2, "3Gi"), (3, "3Gi")])
def test_a_worker_may_use_more_memory_each_time_up_to_its_limit(times: int, amount: str) -> None:
    spec = job(worker_resource_request="memory=1Gi", worker_resource_limit="memory=3Gi")
    assert memory(node_pod(spec, worker(memory_doublings=times))) == (amount, amount)


def test_master_and_parameter_servers_may_use_their_whole_memory_limit() -> None:
    flags = {"memory": "1Gi"}, {"memory": "3Gi"}
    spec = job(
        num_ps=1,
        ps_resource_request=flags[0],
        ps_resource_limit=flags[1],
        master_resource_request=flags[0],
        master_resource_limit=flags[1],
    )
    assert memory(master_pod(spec)) == ("1Gi", "3Gi")
    assert memory(node_pod(spec, worker("ps-0"))) == ("1Gi", "3Gi")
    assert memory(node_pod(spec, worker("ps-0", memory_doublings=1))) == ("2048Mi", "3Gi")


def test_pods_have_priority_class_of_their_role() -> None:
    spec = job(worker_pod_priority="high=0.5", master_pod_priority="high", ps_pod_priority="")
    classes = [
        node_pod(spec, worker(f"worker-{place + 9}", place=place, places=4))["spec"]["priorityClassName"]
        for place in range(4)
    ]
    assert classes == ["high", "high", "low", "low"]
    assert master_pod(spec)["spec"]["priorityClassName"] == "high"
    assert "priorityClassName" not in node_pod(spec, worker("ps-0"))["spec"]


def test_volumes_are_mounted_once_each() -> None:
    volumes = (
        "claim_name=c,mount_path=/a;claim_name=c,mount_path=/b,sub_path=x,read_only=true;"
        "host_path=/h,mount_path=/tmp;config_map=m,mount_path=/m;secret=s,mount_path=/s"
    )
    spec = node_pod(job(volume=volumes), worker())["spec"]
    assert spec["volumes"][:4] == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "volume-1", "hostPath": {"path": "/h"}},
        {"name": "volume-2", "configMap": {"name": "m"}},
        {"name": "volume-3", "secret": {"secretName": "s"}},
    ]
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts["/b"] == {"name": "volume-0", "mountPath": "/b", "subPath": "x", "readOnly": True}
    assert mounts["/tmp"]["name"] == "volume-1"
    ours = {"/home/elasticdl", "/var/run/elasticdl/job", "/var/lib/elasticdl"}
    assert set(mounts) == {"/a", "/b", "/tmp", "/m", "/s", *ours}


def test_a_volume_above_a_folder_of_the_jobs_own_does_not_take_its_place() -> None:
    spec = node_pod(job(volume="claim_name=c,mount_path=/var/lib"), worker())["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    assert (mounts["/var/lib"], mounts["/var/lib/elasticdl"]) == ("volume-0", "state")


def test_the_environment_arrives_as_written() -> None:
    pod = node_pod(job(), worker(environment={"ODD": "$(HOME) $HOME $$", "MASTER_ADDR": "10.0.0.1:50001"}))
    assert variables(pod)["ODD"] == "$$(HOME) $$HOME $$$$"
    assert variables(pod)["MY_POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert variables(pod)["ELASTICDL_THREADS"]["resourceFieldRef"]["resource"] == "limits.cpu"


def test_values_of_variables_are_in_no_object_but_a_secret() -> None:
    spec = job(envs={"PASSWORD": "hunter2", "EMPTY": ""})
    documents = manifests.manifests(spec, CREDENTIALS)
    assert "hunter2" not in json.dumps(documents)
    (secret,) = (d for d in documents if d["metadata"]["name"] == "elasticdl-mnist-envs")
    assert base64.b64decode(secret["data"]["PASSWORD"]) == b"hunter2"
    assert secret["data"]["EMPTY"] == ""
    # What the master reads, and makes the other pods of.
    recorded = from_yaml(documents[0]["data"]["spec.yaml"])
    for pod in (documents[-1], node_pod(recorded, worker()), node_pod(recorded, worker("ps-0"))):
        assert variables(pod)["PASSWORD"] == {
            "secretKeyRef": {"name": "elasticdl-mnist-envs", "key": "PASSWORD"}
        }


@pytest.mark.parametrize("program", [{}, {"job_command": "python p.py", "num_evaluator": 1}])
def test_variable_from_user_secret_is_referenced(program: dict[str, Any]) -> None:
    spec = job(secret_envs="TOKEN=mine,OTHER=mine/a.key", **program)
    assert "elasticdl-mnist-envs" not in [
        d["metadata"]["name"] for d in manifests.manifests(spec, CREDENTIALS)
    ]
    for name in ("worker-0", "evaluator-0"):
        found = variables(node_pod(spec, worker(name)))
        assert found["TOKEN"] == {"secretKeyRef": {"name": "mine", "key": "TOKEN"}}
        assert found["OTHER"] == {"secretKeyRef": {"name": "mine", "key": "a.key"}}


def test_variable_that_a_node_sets_itself_is_not_from_a_secret() -> None:
    spec = job(secret_envs="ELASTICDL_THREADS=mine,PYTHONUNBUFFERED=mine,HOME=mine")
    pod = node_pod(spec, worker(environment={"PYTHONUNBUFFERED": "1"}))
    names = [variable["name"] for variable in container(pod)["env"]]
    assert sorted(names) == ["ELASTICDL_THREADS", "HOME", "MY_POD_IP", "PYTHONUNBUFFERED"]
    assert variables(pod)["PYTHONUNBUFFERED"] == "1"
    assert variables(pod)["ELASTICDL_THREADS"] == {
        "secretKeyRef": {"name": "mine", "key": "ELASTICDL_THREADS"}
    }


def test_record_of_an_older_version_has_its_values_still() -> None:
    """Jobs that were submitted before the values were moved go on."""
    spec = job(envs={"A": "b"})
    assert variables(master_pod(spec))["A"] == "b"


def test_file_system_of_the_image_is_read_only_unless_a_user_says_otherwise() -> None:
    pod = node_pod(job(), worker())
    mounts = {mount["mountPath"] for mount in container(pod)["volumeMounts"]}
    assert variables(pod)["HOME"] in mounts
    writable = node_pod(job(read_only_root_filesystem=False), worker())
    assert container(writable)["securityContext"]["readOnlyRootFilesystem"] is False
    assert "HOME" not in variables(writable)
    assert "home" not in [volume["name"] for volume in writable["spec"]["volumes"]]


@pytest.mark.parametrize(
    ("flags", "requests", "limits"),
    [
        ({}, {"memory": "0"}, {"memory": "8Gi"}),
        ({"worker_resource_request": "cpu=1"}, {"cpu": "1", "memory": "0"}, {"cpu": "1", "memory": "8Gi"}),
        ({"worker_resource_request": "memory=1Gi"}, {"memory": "1Gi"}, {"memory": "1Gi"}),
        ({"worker_resource_limit": "memory=20Gi"}, {}, {"memory": "20Gi"}),
        ({"default_resource_limit": ""}, {}, {}),
        (
            {"default_resource_limit": "memory=1Gi,cpu=2"},
            {"cpu": "0", "memory": "0"},
            {"cpu": "2", "memory": "1Gi"},
        ),
    ],
)
def test_default_limits(flags: dict[str, Any], requests: dict[str, str], limits: dict[str, str]) -> None:
    assert container(node_pod(job(**flags), worker()))["resources"] == {
        "requests": requests,
        "limits": limits,
    }


def test_a_master_knows_which_pod_it_is() -> None:
    """Those that come after it have its name, but not its number."""
    assert variables(master_pod(job()))["ELASTICDL_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert "ELASTICDL_POD_UID" not in variables(node_pod(job(), worker()))


def test_a_user_may_set_the_threads() -> None:
    pod = node_pod(job(), worker(environment={"ELASTICDL_THREADS": "3"}))
    assert variables(pod)["ELASTICDL_THREADS"] == "3"


def test_pod_and_image_flags_are_in_the_manifest() -> None:
    spec = job(
        image_pull_policy="Never",
        image_pull_secret="pull",
        service_account="me",
        cluster_spec_json='{"worker_spec": {"nodeSelector": {"disk": "ssd"}}, "pod_spec": {"labels": {"a": "b"}}}',
    )
    pod = node_pod(spec, worker())
    assert container(pod)["imagePullPolicy"] == "Never"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert master_pod(spec)["spec"]["serviceAccountName"] == "me"
    assert master_pod(spec)["metadata"]["labels"]["a"] == "b"
    assert "nodeSelector" not in master_pod(spec)["spec"]


def test_a_program_is_given_notice_before_the_signal() -> None:
    spec = job(job_command="python p.py", num_ps=1)
    assert "preStop" in container(node_pod(spec, worker()))["lifecycle"]
    assert "lifecycle" not in container(node_pod(spec, worker("ps-0")))
    # Workers of ours finish their batch on SIGTERM.
    assert "lifecycle" not in container(node_pod(job(), worker()))


def notice(pod: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How long it takes, in naps, where a pod has this folder for what is said of it."""
    (volume,) = (v for v in pod["spec"]["volumes"] if "downwardAPI" in v)
    (mount,) = (m for m in container(pod)["volumeMounts"] if m["name"] == volume["name"])
    *words, script = container(pod)["lifecycle"]["preStop"]["exec"]["command"]
    naps = folder / "naps"
    naps.touch()
    (folder / "sleep").write_text(f'#!/bin/sh\necho "$1" >> {naps}\n')
    (folder / "sleep").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    subprocess.run([*words, script.replace(mount["mountPath"], str(folder))], check=True)
    return naps.read_text().split()


def test_drain_notice_ends_when_pod_is_annotated_with_no_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = node_pod(job(job_command="python p.py"), worker())
    (volume,) = (v["downwardAPI"] for v in pod["spec"]["volumes"] if "downwardAPI" in v)
    (item,) = volume["items"]
    (annotation,) = NO_NOTICE["metadata"]["annotations"]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{annotation}']"
    # Kubernetes makes an empty file of what is not said.
    (tmp_path / item["path"]).touch()
    assert notice(pod, tmp_path, monkeypatch) == ["1"] * NOTICE_SECONDS
    (tmp_path / "naps").unlink()
    (tmp_path / item["path"]).write_text("true")
    assert notice(pod, tmp_path, monkeypatch) == []


@pytest.mark.parametrize(("grace", "notice_takes"), [(30, 15), (600, 15), (10, 5), (3, 1), (1, 0)])
def test_termination_signal_is_sent_at_half_of_the_grace(
    grace: int, notice_takes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = json.dumps({"pod_spec": {"terminationGracePeriodSeconds": grace}})
    pod = node_pod(job(job_command="python p.py", cluster_spec_json=fields), worker())
    assert pod["spec"]["terminationGracePeriodSeconds"] == grace
    naps = notice(pod, tmp_path, monkeypatch) if notice_takes else container(pod).get("lifecycle", [])
    assert len(naps) == notice_takes


def account(pod: dict[str, Any]) -> tuple[str | None, bool]:
    return pod["spec"].get("serviceAccountName"), pod["spec"]["automountServiceAccountToken"]


@pytest.mark.parametrize(
    ("fields", "flag", "accounts"),
    [
        # As the master, the parameter servers and the workers have it.
        ({}, "", [("elasticdl", True), (None, False), (None, False)]),
        (
            {"worker_spec": {"serviceAccountName": "reader"}},
            "boss",
            [("boss", True), (None, False), ("reader", False)],
        ),
        (
            {"pod_spec": {"serviceAccountName": "all", "automountServiceAccountToken": False}},
            "",
            [("all", True), ("all", False), ("all", False)],
        ),
        (
            {
                "pod_spec": {"service_account": "all"},
                "ps_spec": {"serviceAccountName": "store", "automountServiceAccountToken": True},
            },
            "boss",
            [("boss", True), ("store", True), ("all", False)],
        ),
        (
            {"master_spec": {"serviceAccountName": "boss"}},
            "",
            [("boss", True), (None, False), (None, False)],
        ),
    ],
)
def test_pods_have_service_account_of_their_role(
    fields: dict[str, Any], flag: str, accounts: list[tuple[str | None, bool]]
) -> None:
    spec = job(service_account=flag, cluster_spec_json=json.dumps(fields), num_ps=1)
    pods = [master_pod(spec), node_pod(spec, worker("ps-0")), node_pod(spec, worker())]
    assert [account(pod) for pod in pods] == accounts


def test_place_service_selects_any_node_of_the_place() -> None:
    spec = job(job_command="python p.py", need_tf_config=True)
    service = manifests.place_service(spec, "worker", 2, index=5)
    assert service["metadata"]["name"] == "mnist-edljob-worker-2"
    assert (
        service["spec"]["selector"].items()
        <= node_pod(spec, worker("worker-5", place=2))["metadata"]["labels"].items()
    )
    assert [port["port"] for port in service["spec"]["ports"]] == [50010]


@pytest.mark.parametrize(
    ("flags", "ports"),
    [
        ({}, [50001]),
        ({"job_command": "python p.py", "public_client": True}, [50001, 50002]),
        ({"job_command": "python p.py", "public_client": False}, [50001]),
    ],
)
def test_the_ports_of_the_master(flags: dict[str, Any], ports: list[int]) -> None:
    assert [port["port"] for port in manifests.master_service(job(**flags))["spec"]["ports"]] == ports


@pytest.mark.parametrize(
    ("port", "ports"), [(5000, [5000, 50002]), (50002, [50002, 50001]), (0, [50001, 50002])]
)
def test_the_port_of_the_master_may_be_chosen(port: int, ports: list[int]) -> None:
    spec = job(job_command="python p.py", public_client=True, master_port=port)
    given = manifests.master_service(spec)["spec"]["ports"]
    assert [entry["port"] for entry in given] == ports
    # The pod's own are what they are.
    assert [entry["targetPort"] for entry in given] == [50001, 50002]
    assert [naming.master_port(spec), naming.shards_port(spec)] == ports


def test_the_masters_port_is_not_taken_for_one_without_encryption() -> None:
    """By service meshes, which go by the part of its name before the dash."""
    own, public = manifests.master_service(job(job_command="x"))["spec"]["ports"]
    assert own["name"].partition("-")[0] == "tls"
    # Found out by looking.
    assert public["name"] == "shards"
