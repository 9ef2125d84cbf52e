"""Access to one of the cluster's machines: make folders there, kill a process without the kubelet's knowledge.

It is a pod with the rights of the machine's root. The cluster must allow such pods.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from e2e.kubernetes.conftest import Kubectl

NAME = "host-access"
# Kills the one Python process that has these variables, given as JSON.
_KILL = """
import json, os, pathlib, signal, sys
wanted = {f"{name}={value}".encode() for name, value in json.loads(sys.argv[1]).items()}
def found(process):
    try:
        variables, words = ((process / name).read_bytes().split(b"\\0") for name in ("environ", "cmdline"))
    except OSError:
        return False
    return wanted <= {*variables} and b"python3" in words
(process,) = (each for each in pathlib.Path("/proc").glob("[0-9]*") if found(each))
os.kill(int(process.name), signal.SIGKILL)
"""
# Prints a line when it has the lock, and holds it until its input ends.
_LOCK = """
import fcntl, sys
with open(sys.argv[1]) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True, kw_only=True)
class HostAccess:
    kubectl: Kubectl
    machine: str

    @property
    def folder(self) -> str:
        """On the machine, for this test alone, and for every user."""
        return f"/tmp/{self.kubectl.namespace}"

    @property
    def here(self) -> dict[str, Any]:
        """Fields of pods that are to run on that machine."""
        return {"nodeSelector": {"kubernetes.io/hostname": self.machine}}

    def sh(self, script: str) -> str:
        """In the folder."""
        return self.kubectl("exec", NAME, "--", "sh", "-c", f"set -e; cd /machine{self.folder}; {script}")

    def kill(self, marks: dict[str, str]) -> None:
        self.kubectl("exec", NAME, "--", "python3", "-c", _KILL, json.dumps(marks))

    @contextlib.contextmanager
    def locked(self, file: str) -> Iterator[None]:
        """Waits for the lock of a file of the folder, and holds it."""
        command = ("python3", "-c", _LOCK, f"/machine{self.folder}/{file}")
        holding = subprocess.Popen(
            ["kubectl", f"--namespace={self.kubectl.namespace}", "exec", "--stdin", NAME, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holding.stdout is not None
        try:
            assert holding.stdout.readline() == "locked\n"
            yield
        finally:
            holding.communicate()


@contextlib.contextmanager
def host_access(kubectl: Kubectl, machine: str) -> Iterator[HostAccess]:
    kubectl("create", "--filename=-", text=json.dumps(_pod(machine)))
    kubectl.wait_until_ready(NAME)
    made = HostAccess(kubectl=kubectl, machine=machine)
    kubectl("exec", NAME, "--", "install", "--directory", "--mode=777", f"/machine{made.folder}")
    yield made
    kubectl("exec", NAME, "--", "rm", "-rf", f"/machine{made.folder}")
    kubectl("delete", "pod", NAME, "--wait=false")


def _pod(machine: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "elasticdl-test:light",
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [{"name": "tmp", "mountPath": "/machine/tmp"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME},
        "spec": {
            "nodeName": machine,
            "hostPID": True,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "tmp", "hostPath": {"path": "/tmp"}}],
        },
    }
