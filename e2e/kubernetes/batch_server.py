"""The client of the batch server that workers of a test wait for (`e2e/zoo/held/batch_server.py`)."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import httpx

from e2e.conftest import DEADLINE
from e2e.kubernetes.conftest import Kubectl, api, machines

NAME, PORT = "batch-server", 8000


@dataclass(frozen=True, kw_only=True)
class BatchServer:
    kubectl: Kubectl
    # As pods reach it.
    address: str
    directly: bool = False

    @classmethod
    def opened(cls, kubectl: Kubectl, *, programs: str) -> BatchServer:
        """On the first machine, which tests that stop machines leave alone. `programs`: the ConfigMap with its code."""
        kubectl("create", "--filename=-", text=json.dumps(_pod(machines(kubectl)[0], programs)))
        kubectl.wait_until_ready(NAME)
        return cls(kubectl=kubectl, address=f"{kubectl.get('pod', NAME)['status']['podIP']}:{PORT}")

    def without_the_api_server(self) -> BatchServer:
        """For processes in the cluster's network."""
        return dataclasses.replace(self, directly=True)

    def ask(self, method: str, path: str = "") -> Any:
        path = path.rstrip("/")
        if self.directly:
            answer = httpx.request(method, f"http://{self.address}/{path}", trust_env=False, timeout=DEADLINE)
        else:
            proxy = f"/api/v1/namespaces/{self.kubectl.namespace}/pods/{NAME}:{PORT}/proxy"
            answer = api().request(method, f"{proxy}/{path}")
        assert answer.status_code == 200, f"{method} {path}: {answer.text}"
        return json.loads(answer.text or "{}")


def _pod(machine: str, programs: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "elasticdl-test:light",
        "imagePullPolicy": "Never",
        "command": ["python3", "/programs/batch_server.py", str(PORT)],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME},
        "spec": {
            "nodeName": machine,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "programs", "configMap": {"name": programs}}],
        },
    }
