"""Jobs whose workers stop where a test wants them to, so that whatever happens to a job happens in the middle of it.

The pods and the test share a folder of this machine (`e2e/zoo/held/gate.py`); jobs find their programs there too.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import packaging
import psutil

from e2e.conftest import ROOT, wait_until
from e2e.kubernetes.conftest import Elasticdl, Kubectl

NAME = "job"
MASTER = f"elasticdl-{NAME}-master"
# Who is held for long does not hang.
COMMON_FLAGS = (f"--job_name={NAME}", "--image_pull_policy=Never", "--stall_factor=0")
# Of the program in e2e/zoo/held: each worker does shards of four batches of ten samples.
SIZE, EPOCHS = 1000, 2
PROGRAM = "python3 /held/zoo/held/program.py"
PUBLIC = ROOT / ".public-client"


def _process(name: str, environment: dict[str, str]) -> psutil.Process:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if environment.items() <= process.environ().items() and "python3" in process.cmdline():
                return process
    raise AssertionError(f"{name} does not run on this machine")


@dataclass(frozen=True, kw_only=True)
class HeldJob:
    kubectl: Kubectl
    elasticdl: Elasticdl
    folder: Path

    @classmethod
    def prepared(cls, kubectl: Kubectl, elasticdl: Elasticdl, folder: Path) -> HeldJob:
        shutil.copytree(ROOT / "e2e" / "zoo" / "held", folder / "zoo" / "held")
        # Pods are other users than whoever makes the folder.
        folder.chmod(0o777)
        return cls(kubectl=kubectl, elasticdl=elasticdl, folder=folder)

    # -- a job -----------------------------------------------------------------------------------------------

    def start_program(self, *flags: str, volumes: str = "") -> None:
        """Workers run the shard program."""
        self.elasticdl.train(*self._program(*flags, volumes=volumes))

    def apply_program(self, *flags: str) -> None:
        """The same from a file, as by somebody who has no `elasticdl` where the cluster is."""
        file = self.folder / "job.yaml"
        self.elasticdl.train(*self._program(*flags), f"--yaml={file}")
        self.kubectl("apply", "-f", str(file))

    def _program(self, *flags: str, volumes: str = "") -> tuple[str, ...]:
        return (
            *COMMON_FLAGS,
            "--image_name=elasticdl-test:light",
            f"--job_command={PROGRAM}",
            f"--volume={self._volume}{volumes and ';'}{volumes}",
            *flags,
        )

    def with_public_package(self) -> str:
        """The flag by which the program finds the public `elasticai_api`, and what that needs, before ours. (Variables
        of all pods, --envs, are the master's too.)
        """
        assert (PUBLIC / "elasticai_api").is_dir(), "The public package is missing: make .public-client"
        shutil.copytree(PUBLIC, self.folder / "public")
        for needed in (packaging, psutil):
            shutil.copytree(Path(str(needed.__file__)).parent, self.folder / "public" / needed.__name__)
        return f"--job_command=env PYTHONPATH=/held/public {PROGRAM}"

    def start_model(self, data: Path, *flags: str) -> None:
        """Workers train a small network on digits, with parameter servers."""
        shutil.copytree(data / "train", self.folder / "data" / "train")
        self.elasticdl.train(
            *COMMON_FLAGS,
            "--image_name=elasticdl-test:keras",
            "--model_zoo=/held/zoo",
            "--model_def=held.model.custom_model",
            "--training_data=/held/data/train",
            f"--volume={self._volume}",
            "--envs=ELASTICDL_THREADS=1",
            *flags,
        )

    @property
    def _volume(self) -> str:
        return f"host_path={self.folder},mount_path=/held"

    # -- the gates -------------------------------------------------------------------------------------------

    def limit(self, batches: int, node: str = "") -> None:
        """So many batches may each worker do, or the one that is named."""
        part = self.folder / ".limit"
        part.write_text(str(batches))
        part.rename(self.folder / (f"limit-{node}" if node else "limit"))

    def release(self) -> None:
        for path in self.folder.glob("limit*"):
            path.unlink()

    def done(self) -> dict[str, int]:
        """The batches of the workers that are, or were, held."""
        return {path.name.removeprefix("done-"): int(path.read_text()) for path in self.folder.glob("done-*")}

    def wait_for_held(self, batches: int, *nodes: str) -> None:
        """Until all of these have done so many, which is as many as they may."""
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

    def process(self, node: str) -> psutil.Process:
        """As this machine sees it, for those who want to kill it without telling anybody."""
        service = self.kubectl.get("service", MASTER)["spec"]["clusterIP"]
        return _process(node, {"ELASTICDL_NODE": node, "MASTER_ADDR": f"{service}:50001"})

    def master_process(self) -> psutil.Process:
        address = self.kubectl.get("pod", MASTER)["status"]["podIP"]
        return _process("the master", {"ELASTICDL_PLATFORM": "kubernetes", "MY_POD_IP": address})

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
