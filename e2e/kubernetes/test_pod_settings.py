"""A job with all that a cluster may want of its pods, seen from inside of one: volumes of every kind, variables,
places, rights. It is looked at while it runs, when its pods are gone, and is gone itself when it is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kubernetes.conftest import Elasticdl, Kubectl, machines
from e2e.kubernetes.host_access import HostAccess, host_access

# Says what it finds, and does its part of the data.
PROGRAM = """
import json, os, pathlib, socket, ssl
import grpc
from elasticai_api.common.data_shard_service import DataShardService

def found(path):
    return pathlib.Path(path).read_text().strip()

def writable(path):
    try:
        (pathlib.Path(path) / f"by-{os.environ['WORKER_ID']}").write_text("x")
    except OSError:
        return False
    return True

def spoken():
    trusted = ssl.create_default_context(cafile=os.environ["ELASTICDL_CA_FILE"])
    host, _, port = os.environ["MASTER_ADDR"].rpartition(":")
    with socket.create_connection((host, int(port))) as plain:
        with trusted.wrap_socket(plain, server_hostname=os.environ["ELASTICDL_TLS_NAME"]) as line:
            return line.version()

def answer(channel, call):
    try:
        next(channel.unary_stream(call)(b"", timeout=60))
    except grpc.RpcError as error:
        return error.code().name
    return "OK"

def without_token():
    trusted = grpc.ssl_channel_credentials(pathlib.Path(os.environ["ELASTICDL_CA_FILE"]).read_bytes())
    named = [("grpc.ssl_target_name_override", os.environ["ELASTICDL_TLS_NAME"])]
    with grpc.secure_channel(os.environ["MASTER_ADDR"], trusted, named) as channel:
        return answer(channel, "/elasticdl.Master/Join")

def beyond_shards():
    with grpc.insecure_channel(os.environ["DLROVER_MASTER_ADDR"]) as channel:
        return answer(channel, "/elasticdl.Master/Join")

rights = dict(line.split(":", 1) for line in found("/proc/self/status").splitlines())
print("found", json.dumps({
    "host": found("/host/hello"),
    "claim": found("/claim/hello"),
    "settings": found("/settings/hello"),
    "key": found("/keys/one"),
    "given": os.environ["GIVEN"],
    "said": os.environ["SAID"],
    "shouted": os.environ.get("SHOUTED"),
    "extra": os.environ["EXTRA"],
    "writable": [writable(path) for path in ("/host", "/claim", "/tmp", os.environ["HOME"])],
    "image_is_read_only": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
    "from_secret": os.environ["FROM_SECRET"],
    "uid": os.getuid(),
    "capabilities": int(rights["CapEff"], 16),
    "no_new_privileges": int(rights["NoNewPrivs"]),
    "account": os.path.exists("/var/run/secrets/kubernetes.io"),
    "secrets": sorted(name for name in os.listdir("/var/run/elasticdl/job") if not name.startswith("..")),
    "tls": spoken(),
    "without_token": without_token(),
    "beyond_shards": beyond_shards(),
}), flush=True)
shards = DataShardService(batch_size=10, num_epochs=2, dataset_size=200, num_minibatches_per_shard=2)
while shard := shards.fetch_shard():
    for start in range(shard.start, shard.end, 10):
        shards.report_batch_done(10)
"""
FOUND = {
    "host": "from the machine",
    "claim": "from a claim",
    "settings": "from a map",
    "key": "from a secret",
    "given": "by --populate_env_names",
    "said": "by --envs",
    "shouted": None,
    "extra": "by --cluster_spec",
    "writable": [False, True, True, True],
    "image_is_read_only": True,
    "from_secret": "from a secret",
    "uid": 1000,
    "capabilities": 0,
    "no_new_privileges": 1,
    "account": False,
    # The key of the certificate is for pods that serve.
    "secrets": ["ca.crt", "token"],
    "tls": "TLSv1.3",
    "without_token": "UNAUTHENTICATED",
    "beyond_shards": "UNIMPLEMENTED",
}
TAINT = "elasticdl.test/reserved"


@pytest.fixture
def machine(kubectl: Kubectl) -> Iterator[str]:
    """One that is only for who tolerates its taint, and is known by a label."""
    name = machines(kubectl)[-1]
    kubectl("taint", "node", name, f"{TAINT}=yes:NoSchedule", "--overwrite")
    kubectl("label", "node", name, f"{TAINT}={kubectl.namespace}", "--overwrite")
    yield name
    kubectl("taint", "node", name, f"{TAINT}-")
    kubectl("label", "node", name, f"{TAINT}-")


@pytest.fixture
def folders(kubectl: Kubectl, machine: str) -> Iterator[HostAccess]:
    with host_access(kubectl, machine) as found:
        for folder, text in (("host", "from the machine"), ("disk/inner", "from a claim")):
            found.sh(f"mkdir -p {folder}; chmod 777 {folder}; echo {text} > {folder}/hello")
        yield found


@pytest.fixture
def volumes(kubectl: Kubectl, folders: HostAccess) -> Iterator[str]:
    kubectl("create", "configmap", "settings", "--from-literal=hello=from a map")
    kubectl("create", "secret", "generic", "keys", "--from-literal=one=from a secret")
    disk = f"disk-{kubectl.namespace}"
    size = {"storage": "1Gi"}
    source = {"hostPath": {"path": f"{folders.folder}/disk"}, "storageClassName": disk}
    for document in (
        {
            "kind": "PersistentVolume",
            "metadata": {"name": disk},
            "spec": {"capacity": size, "accessModes": ["ReadWriteMany"], **source},
        },
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {
                "resources": {"requests": size},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": disk,
            },
        },
    ):
        kubectl("create", "--filename=-", text=json.dumps({"apiVersion": "v1", **document}))
    yield (
        f"host_path={folders.folder}/host,mount_path=/host,read_only=true;claim_name=data,mount_path=/claim,sub_path=inner;"
        "config_map=settings,mount_path=/settings;secret=keys,mount_path=/keys/one,sub_path=one;"
        "config_map=programs,mount_path=/programs"
    )
    kubectl("delete", "persistentvolume", disk, "--wait=false")


def fields(machine: str) -> dict[str, Any]:
    place = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [place]}]}
    return {
        "pod_spec": {
            "labels": {"cost-center": "vision"},
            "tolerations": [{"key": TAINT, "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        },
        "worker_spec": {
            "annotations": {"example.com/metrics": "on"},
            "env": [{"name": "EXTRA", "value": "by --cluster_spec"}],
        },
    }


def test_pod_has_all_requested_volumes_variables_and_rights(
    kubectl: Kubectl,
    elasticdl: Elasticdl,
    machine: str,
    volumes: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubectl("create", "configmap", "programs", f"--from-literal=program.py={PROGRAM}")
    account = ("--role=elasticdl", f"--serviceaccount={kubectl.namespace}:other")
    kubectl("create", "serviceaccount", "other")
    kubectl("create", "rolebinding", "other", *account)
    monkeypatch.setenv("GIVEN", "by --populate_env_names")
    monkeypatch.setenv("SHOUTED", "outside of the list")
    spec = fields(machine)
    spec["worker_spec"]["nodeSelector"] = {TAINT: kubectl.namespace}
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump(spec))
    elasticdl.train(
        "--job_name=job",
        "--image_name=elasticdl-test:light",
        "--image_pull_policy=Never",
        "--image_pull_secret=registry",
        "--service_account=other",
        "--job_command=python3 /programs/program.py",
        "--num_workers=2",
        "--worker_pod_priority=0.5",
        "--worker_resource_request=cpu=100m,memory=128Mi,disk=50Mi",
        "--worker_resource_limit=cpu=1,memory=256Mi",
        f"--volume={volumes}",
        "--envs=SAID=by --envs",
        "--populate_env_names=GIV.*",
        "--secret_envs=FROM_SECRET=keys/one",
        f"--cluster_spec={tmp_path}/pods.yaml",
        "--wait",
    )
    for number in (0, 1):
        log = kubectl("logs", f"job-edljob-worker-{number}")
        (line,) = (line for line in log.splitlines() if line.startswith("found "))
        assert json.loads(line.removeprefix("found ")) == FOUND
        assert f"worker-{number}: {line}" in elasticdl.jobs("logs", "job")
    pods = {pod["metadata"]["name"]: pod for pod in kubectl.list("pods", "elasticdl-job-name=job")}
    check_pods(pods, machine)
    check_objects(kubectl)
    check_values_are_secret(kubectl, pods.values())

    # The record stays when the pods are gone.
    kubectl("delete", "pods", "--selector=app=elasticdl", "--grace-period=1")
    assert "state: succeeded" in elasticdl.jobs("status", "job")
    assert "Exact: every sample of every epoch is accounted for." in elasticdl.jobs("audit", "job")
    assert "job  train  succeeded" in elasticdl.jobs("list")
    logs = elasticdl("jobs", "logs", "job", f"--namespace={kubectl.namespace}")
    assert logs.returncode != 0
    assert "They went with the job's pods" in logs.stderr
    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []


def check_pods(pods: dict[str, dict[str, Any]], machine: str) -> None:
    workers = [pods[f"job-edljob-worker-{number}"] for number in (0, 1)]
    master = pods["elasticdl-job-master"]
    for pod in (master, *workers):
        assert pod["spec"]["nodeName"] == machine
        assert pod["metadata"]["labels"]["cost-center"] == "vision"
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert [pod["spec"]["priorityClassName"] for pod in workers] == ["high", "low"]
    for pod in workers:
        assert pod["metadata"]["annotations"]["example.com/metrics"] == "on"
        assert pod["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "50Mi"},
            # Grows towards its limit when it is too little.
            "limits": {"cpu": "1", "memory": "128Mi", "ephemeral-storage": "50Mi"},
        }
    assert master["spec"]["serviceAccountName"] == "other"


def check_objects(kubectl: Kubectl) -> None:
    """What else a job has, each owned by its record."""
    record = kubectl.get("configmap", "elasticdl-job")
    for kind, name in (
        ("secret", "elasticdl-job"),
        ("secret", "elasticdl-job-envs"),
        ("networkpolicy", "elasticdl-job"),
        ("networkpolicy", "elasticdl-job-api"),
        ("service", "elasticdl-job-master"),
    ):
        (owner,) = kubectl.get(kind, name)["metadata"]["ownerReferences"]
        assert owner["uid"] == record["metadata"]["uid"]
    ports = kubectl.get("service", "elasticdl-job-master")["spec"]["ports"]
    # The second is the public client's, and serves data shards alone.
    assert [port["port"] for port in ports] == [50001, 50002]


def check_values_are_secret(kubectl: Kubectl, pods: Iterable[dict[str, Any]]) -> None:
    """Of variables: a user without the right to read Secrets sees their names."""
    seen = json.dumps([kubectl.get("configmap", "elasticdl-job"), *pods])
    for value in ("by --envs", "by --populate_env_names"):
        assert value not in seen
    assert "SAID" in seen
