"""The dashboard of the controller's replicas, as users reach it: by a forwarded port, with their own token."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from e2e.conftest import DEADLINE, wait_until
from e2e.kubernetes.conftest import Kubectl
from e2e.kubernetes.controller import NAME, NAMESPACE, log_of

_HOST = f"{NAME}.{NAMESPACE}.svc"
_PORT = 8443
_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
POST = {"X-ElasticDL-Dashboard": "1"}


@dataclass(kw_only=True)
class User:
    """A service account, and what it may do: verbs by resource, in its namespace."""

    kubectl: Kubectl
    name: str
    token: str = field(default="", repr=False)

    @classmethod
    def created(cls, kubectl: Kubectl, name: str) -> User:
        kubectl("create", "serviceaccount", name)
        path = f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts/{name}/token"
        # As `kubectl create token`, which kubectl has since 1.24.
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = json.loads(kubectl("create", "--raw", path, "--filename=-", text=json.dumps(request)))
        return cls(kubectl=kubectl, name=name, token=answer["status"]["token"])

    def grant(self, role: str, *, verbs: str, resources: str) -> None:
        account = f"--serviceaccount={self.kubectl.namespace}:{self.name}"
        self.kubectl("create", "role", role, f"--verb={verbs}", f"--resource={resources}")
        self.kubectl("create", "rolebinding", role, f"--role={role}", account)

    @contextlib.contextmanager
    def granted_everywhere(self, role: str, *, verbs: str, resources: str) -> Iterator[None]:
        """Roles of a cluster outlive the namespace of the test."""
        account = f"--serviceaccount={self.kubectl.namespace}:{self.name}"
        name = f"{role}-{self.kubectl.namespace}"
        try:
            self.kubectl("create", "clusterrole", name, f"--verb={verbs}", f"--resource={resources}")
            self.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
            yield
        finally:
            self.kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")


class Page:
    """The dashboard of one pod."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def get(self, path: str, user: User | None = None, **headers: str) -> httpx.Response:
        return self._send("GET", path, user, headers)

    def post(self, path: str, user: User, document: dict[str, Any] | None = None) -> httpx.Response:
        return self._send("POST", path, user, POST, document or {})

    def jobs(self, user: User) -> set[str]:
        """Those that the user sees, as NAMESPACE/NAME."""
        answer = self.get("/api/jobs", user)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        assert not document["problem"], document
        return {f"{row['namespace']}/{row['job']}" for row in document["jobs"]}

    def _send(
        self, method: str, path: str, user: User | None, headers: dict[str, str], document: Any = None
    ) -> httpx.Response:
        identity = {"Authorization": f"Bearer {user.token}"} if user is not None else {}
        return self._client.request(
            method,
            path,
            headers={"Host": f"{_HOST}:{_PORT}", **identity, **headers},
            json=document,
            extensions={"sni_hostname": _HOST},
        )


@contextlib.contextmanager
def pages(controller: Kubectl, pods: Sequence[str]) -> Iterator[list[Page]]:
    """The dashboards of the pods, which are served as soon as a replica knows the cluster."""
    for pod in pods:
        wait_until(lambda pod=pod: "Dashboard: https://" in log_of(controller, pod), f"{pod} serves")
    secret = controller.get("secret", "training-job-controller-webhook")
    tls = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
    with contextlib.ExitStack() as opened:
        found = []
        for pod in pods:
            port = opened.enter_context(_forwarded_port(controller, pod))
            client = httpx.Client(
                base_url=f"https://127.0.0.1:{port}",
                verify=tls,
                trust_env=False,
                timeout=DEADLINE,
            )
            found.append(Page(opened.enter_context(client)))
        yield found


@contextlib.contextmanager
def _forwarded_port(controller: Kubectl, pod: str) -> Iterator[int]:
    command = ["kubectl", f"--namespace={controller.namespace}", "port-forward", f"pod/{pod}", f":{_PORT}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            port = _FORWARDED.search(line)
            assert port is not None, line
            yield int(port[1])
        finally:
            process.kill()
