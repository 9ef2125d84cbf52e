"""Jobs whose workers stop where a test wants them to, so that whatever happens to a job happens in the middle of it.

They wait for a batch server (`e2e/zoo/held/batch_server.py`), a pod that the test reaches through the API server.
Programs and data come from ConfigMaps, so any cluster that runs pods will do.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import packaging
import psutil

from e2e.conftest import ROOT, wait_until
from e2e.kubernetes.batch_server import BatchServer
from e2e.kubernetes.conftest import Elasticdl, Kubectl

NAME = "job"
MASTER = f"elasticdl-{NAME}-master"
# A worker that waits for the batch server is not stalled.
COMMON_FLAGS = (f"--job_name={NAME}", "--image_pull_policy=Never", "--stall_factor=0")
# Of the program in e2e/zoo/held: each worker does shards of four batches.
SIZE, EPOCHS, BATCH = 1000, 2, 10
PROGRAM = "python3 /held/zoo/held/program.py"
PUBLIC = ROOT / ".public-client"
_PROGRAMS = "config_map=held,mount_path=/held/zoo/held"


@dataclass(frozen=True, kw_only=True)
class HeldJob:
    kubectl: Kubectl
    elasticdl: Elasticdl
    batch_server: BatchServer
    # For files on their way to the cluster.
    folder: Path

    @classmethod
    def prepared(cls, kubectl: Kubectl, elasticdl: Elasticdl, folder: Path) -> HeldJob:
        kubectl("create", "configmap", "held", f"--from-file={ROOT}/e2e/zoo/held")
        batch_server = BatchServer.opened(kubectl, programs="held")
        return cls(kubectl=kubectl, elasticdl=elasticdl, batch_server=batch_server, folder=folder)

    # -- a job -----------------------------------------------------------------------------------------------

    def start_program(self, *flags: str, volumes: str = "") -> None:
        """Workers run the shard program."""
        self.elasticdl.train(*self._program(*flags, volumes=volumes))

    def apply_program(self, *flags: str) -> None:
        """The same from a file, as a user does who has no `elasticdl` where the cluster is."""
        file = self.folder / "job.yaml"
        self.elasticdl.train(*self._program(*flags), f"--yaml={file}")
        self.kubectl("apply", "-f", str(file))

    def _program(self, *flags: str, volumes: str = "") -> tuple[str, ...]:
        return (
            *COMMON_FLAGS,
            "--image_name=elasticdl-test:light",
            f"--job_command={PROGRAM}",
            f"--volume={_PROGRAMS}{volumes and ';'}{volumes}",
            f"--envs={self._batch_server}",
            *self._way_out,
            *flags,
        )

    def start_public_program(self, *flags: str) -> None:
        """The program finds the public `elasticai_api`, and what that needs, before ours. (Variables of all pods,
        --envs, are the master's too.)
        """
        assert (PUBLIC / "elasticai_api").is_dir(), "The public package is missing: make .public-client"
        archive = self.folder / "public.tgz"
        with tarfile.open(archive, "w:gz") as tar:
            for package in (*PUBLIC.iterdir(), *(_folder(each) for each in (packaging, psutil))):
                tar.add(package, arcname=package.name, filter=_without_compiled)
        self.kubectl("create", "configmap", "public", f"--from-file={archive}")
        self.start_program(
            "--job_command=mkdir /tmp/public && tar -C /tmp/public -xzf /public/public.tgz && "
            f"PYTHONPATH=/tmp/public exec {PROGRAM}",
            *flags,
            volumes="config_map=public,mount_path=/public",
        )

    def start_model(self, data: Path, *flags: str, framework: str = "keras") -> None:
        """Workers train a small network on digits."""
        self.kubectl("create", "configmap", "data", f"--from-file={data}/train")
        self.elasticdl.train(
            *COMMON_FLAGS,
            f"--image_name=elasticdl-test:{framework}",
            "--model_zoo=/held/zoo",
            f"--model_def=held.{framework}_model.custom_model",
            "--training_data=/data/train",
            f"--volume={_PROGRAMS};config_map=data,mount_path=/data/train",
            f"--envs=ELASTICDL_THREADS=1;{self._batch_server}",
            *self._way_out,
            *flags,
        )

    @property
    def _batch_server(self) -> str:
        return f"ELASTICDL_TEST_BATCH_SERVER={self.batch_server.address}"

    @property
    def _way_out(self) -> tuple[str, ...]:
        """The batch server is no pod of the job."""
        return (f"--egress={self.batch_server.address}",)

    # -- the batch server -------------------------------------------------------------------------------------------

    def limit(self, batches: int, node: str = "") -> None:
        """The batches that each worker, or the named one, may do."""
        self.batch_server.ask("PUT", f"limit/{batches}/{node}")

    def release(self) -> None:
        self.batch_server.ask("DELETE", "limit")

    def done(self) -> dict[str, int]:
        """The batches of the workers that wait or waited."""
        return dict(self.batch_server.ask("GET")["done"])

    def has_ended(self, node: str) -> bool:
        """Whether its program has come to its own end."""
        return node in self.batch_server.ask("GET")["ended"]

    def wait_for_held(self, batches: int, *nodes: str) -> None:
        """Until all of these have reached their limit of so many batches."""
        wait_until(
            lambda: all(self.done().get(node) == batches for node in nodes),
            f"{', '.join(nodes)} are held after {batches} batches",
        )

    # -- what is said of it ----------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        data = self.kubectl.get("configmap", f"elasticdl-{NAME}")["data"]
        return dict(json.loads(data.get("status.json", "{}")))

    def wait_for_done(self, samples: int) -> None:
        """Until the record says that so many are."""
        wait_until(
            lambda: self.status().get("samples_done", 0) >= samples, f"{samples} samples are done: {self}"
        )

    def messages(self) -> dict[str, str]:
        """What is said of each node."""
        return {node["name"]: node["message"] for node in self.status().get("nodes", [])}

    def pods(self, role: str = "worker") -> dict[str, dict[str, Any]]:
        """By node, without those that are being deleted."""
        found = self.kubectl.list("pods", f"elasticdl-job-name={NAME},elasticdl-replica-type={role}")
        return {
            f"{role}-{pod['metadata']['labels']['elasticdl-replica-index']}": pod
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
        }

    def uids(self) -> dict[str, str]:
        """Of the workers' pods."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def wait_for_running(self, *nodes: str) -> None:
        def running() -> bool:
            pods = {**self.pods(), **self.pods("ps")}
            return all(node in pods and pods[node]["status"]["phase"] == "Running" for node in nodes)

        wait_until(running, f"{', '.join(nodes)} run")

    def wait_for_notice(self, node: str) -> None:
        """Until the master knows that it is leaving."""
        wait_until(
            lambda: any(each["name"] == node and each["draining"] for each in self.status()["nodes"]),
            f"{node} has notice",
        )

    def delete_pod(self, node: str) -> None:
        """As a user does, without waiting for it."""
        role = node.rpartition("-")[0]
        self.kubectl("delete", "pod", self.pods(role)[node]["metadata"]["name"], "--wait=false")

    def marks(self, node: str) -> dict[str, str]:
        """Variables by which its process is known to its machine."""
        service = self.kubectl.get("service", MASTER)["spec"]["clusterIP"]
        return {"ELASTICDL_NODE": node, "MASTER_ADDR": f"{service}:50001"}

    def resume(self) -> None:
        """As a user does when the master is gone."""
        assert "state: interrupted" in self.elasticdl.jobs("status", NAME)
        assert "its master is started again" in self.elasticdl.jobs("resume", NAME)

    def is_over(self) -> bool:
        there = self.kubectl.list("configmaps", f"elasticdl-job-name={NAME}")
        return bool(there) and self.status().get("state") in ("succeeded", "stopped", "failed")

    def delete(self) -> None:
        """As a user does: nothing is left then."""
        self.elasticdl.jobs("delete", NAME)
        assert self.kubectl.left_of(NAME) == []

    def ends_exactly(self, *, epochs: int = EPOCHS, size: int = SIZE) -> list[int]:
        """Lets the job go to its end, which must be a good one. Returns what `again` does."""
        self.release()
        self.kubectl.wait_for_phase(MASTER, "Succeeded")
        audit = self.status()["audit"]
        assert audit["exact"], audit["reason"]
        assert "Exact: every sample of every epoch is accounted for." in self.elasticdl.jobs("audit", NAME)
        assert [row["done"] for row in audit["rows"]] == [size] * epochs
        return self.again()

    def again(self) -> list[int]:
        """How many samples were trained again, by epoch."""
        return [row["again"] for row in self.status()["audit"]["rows"]]


def _folder(package: Any) -> Path:
    return Path(str(package.__file__)).parent


def _without_compiled(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Nor what tests it: all has to fit into a ConfigMap."""
    return None if Path(info.name).name in ("__pycache__", "tests") else info
