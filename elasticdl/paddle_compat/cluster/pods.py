"""The pods of a Job of the guide, as the API server lists them to one of them.

The pod asks with its own service account, over TLS that is verified with the cluster's certificate. Only pods that
the same Job object controls count: neither other pods of the namespace nor those of an older Job of the same name.
"""

from __future__ import annotations

import json
import logging
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.membership import Member, MembershipUnavailable, Phase
from elasticdl.platforms.kubernetes.kubeconfig import Access, inside_access

log = logging.getLogger("elasticdl.paddle")

_TIMEOUT_SECONDS = 10.0
_ROLE_FILE = "paddle/k8s_train/rbac.yaml"
_PHASES = {"Pending": Phase.PENDING, "Running": Phase.RUNNING, "Succeeded": Phase.SUCCEEDED}


@dataclass(kw_only=True)
class JobPods:
    """The membership of a Job; see `Membership`."""

    access: Access
    job_name: str
    own_name: str = field(default_factory=socket.gethostname)
    own_uid: str = ""
    _controller: str = ""

    @classmethod
    def from_inside(cls, *, job_name: str, namespace: str) -> JobPods:
        """Raises `UserError` if this is not a pod of the Job, `MembershipUnavailable` if the server gives no answer."""
        access = inside_access()
        if namespace and namespace != access.namespace:
            raise UserError(
                f"JOB_NAMESPACE is {namespace}, but this pod is in namespace {access.namespace}.",
                hint=f"Set JOB_NAMESPACE to {access.namespace}, or omit it.",
            )
        pods = cls(access=access, job_name=job_name)
        pods.find_own()
        return pods

    def find_own(self) -> None:
        items = self._list()
        own = [each for each in items if each["metadata"]["name"] == self.own_name] or [
            # With hostNetwork the host's name is the machine's.
            each
            for each in items
            if each.get("status", {}).get("podIP") in _own_addresses()
        ]
        if not own:
            raise UserError(
                f"No pod with the label job-name={self.job_name} in namespace {self.access.namespace} is this one "
                f"({self.own_name}).",
                hint="JOB_NAME must be the Job's metadata.name, and JOB_NAMESPACE its namespace.",
            )
        self.own_uid = own[0]["metadata"]["uid"]
        self._controller = _controller_of(own[0])

    def members(self) -> Sequence[Member]:
        return [
            _member(each)
            for each in self._list()
            if _controller_of(each) == self._controller
            and ("deletionTimestamp" not in each["metadata"] or each["status"].get("phase") in ("Succeeded",))
        ]

    def parallelism(self) -> int | None:
        """Returns the parallelism of the Job. None if this account may not read Jobs."""
        name = urllib.parse.quote(self.job_name)
        try:
            job = self._get(f"/apis/batch/v1/namespaces/{self.access.namespace}/jobs/{name}")
        except (_Refused, MembershipUnavailable) as error:
            log.warning("Reading the Job %s failed: %s", self.job_name, error)
            return None
        return int(job["spec"].get("parallelism", 1))

    def _list(self) -> list[dict[str, Any]]:
        selector = urllib.parse.quote(f"job-name={self.job_name}")
        try:
            found = self._get(
                f"/api/v1/namespaces/{self.access.namespace}/pods?labelSelector={selector}&resourceVersion=0"
            )
        except _Refused as error:
            raise UserError(
                f"The service account of this pod may not list pods in namespace {self.access.namespace}: {error}",
                hint=f"Apply the Role paddle-k8s-train: kubectl apply --namespace={self.access.namespace} "
                f"-f {_ROLE_FILE}",
            ) from error
        return list(found["items"])

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.access.server}{path}", headers=self.access.identity.headers()
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.access.tls)
        )
        try:
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            if error.code == 401 and self.access.identity.renew():
                raise MembershipUnavailable("the token has expired") from error
            if error.code in (401, 403, 404):
                raise _Refused(f"{error.code} {error.reason}") from error
            raise MembershipUnavailable(f"{error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise MembershipUnavailable(str(error)) from error


class _Refused(Exception):
    """The API server understood and said no."""


def _controller_of(pod: dict[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences", [])
    return str(next((each["uid"] for each in owners if each.get("controller")), ""))


def _member(pod: dict[str, Any]) -> Member:
    status = pod.get("status", {})
    return Member(
        uid=pod["metadata"]["uid"],
        name=pod["metadata"]["name"],
        address=status.get("podIP", ""),
        phase=_PHASES.get(status.get("phase", "Pending"), Phase.FAILED),
    )


def _own_addresses() -> set[str]:
    return {
        info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None) if isinstance(info[4][0], str)
    }
