"""The pods of a Job, as a server of the Kubernetes API lists them."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.membership import MembershipUnavailable, Phase
from elasticdl.paddle_compat.cluster.pods import JobPods
from elasticdl.platforms.kubernetes.kubeconfig import Access, Identity

Document = dict[str, Any]


@dataclass(kw_only=True)
class Api:
    """Answers with a status and, if that is 200, with pods and the Job."""

    status: int = 200
    pods: list[Document] = field(default_factory=list)
    address: str = ""

    def access(self) -> Access:
        return Access(
            server=self.address,
            namespace="lab",
            tls=ssl.create_default_context(),
            identity=Identity(),
            inside=True,
        )

    def job_pods(self, own: str = "a") -> JobPods:
        pods = JobPods(access=self.access(), job_name="job", own_name=own)
        pods.find_own()
        return pods


def pod(name: str, *, job: str = "uid-job", phase: str = "Running", **metadata: Any) -> Document:
    owner = {"uid": job, "kind": "Job", "controller": True}
    about = {"name": name, "uid": f"uid-{name}", "ownerReferences": [owner], **metadata}
    return {"metadata": about, "status": {"phase": phase, "podIP": f"10.0.0.{ord(name[0])}"}}


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api(pods=[pod("a"), pod("b")])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/api/v1/namespaces/lab/pods":
                assert parse_qs(url.query)["labelSelector"] == ["job-name=job"]
                body: Document = {"items": found.pods}
            else:
                assert url.path == "/apis/batch/v1/namespaces/lab/jobs/job"
                body = {"spec": {"parallelism": 3}}
            self.send_response(found.status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *words: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    server.server_close()


def test_only_pods_of_the_same_job_object_are_members(api: Api) -> None:
    api.pods += [pod("c", job="uid-older-job"), pod("d", deletionTimestamp="2026-11-16T05:35:09Z")]
    pods = api.job_pods()
    assert pods.own_uid == "uid-a"
    assert [(each.name, each.phase) for each in pods.members()] == [
        ("a", Phase.RUNNING),
        ("b", Phase.RUNNING),
    ]


def test_unknown_phase_counts_as_failed(api: Api) -> None:
    pods = api.job_pods()
    api.pods[1]["status"]["phase"] = "Unknown"
    assert [each.phase for each in pods.members()] == [Phase.RUNNING, Phase.FAILED]


@pytest.mark.parametrize("status", [401, 403])
def test_refusal_names_the_role(api: Api, status: int) -> None:
    api.status = status
    with pytest.raises(UserError) as caught:
        api.job_pods()
    assert "may not list pods in namespace lab" in caught.value.message
    assert "kubectl apply --namespace=lab -f paddle/k8s_train/rbac.yaml" in caught.value.hint


def test_pod_of_another_job_is_refused(api: Api) -> None:
    with pytest.raises(UserError) as caught:
        api.job_pods(own="z")
    assert "No pod with the label job-name=job in namespace lab is this one (z)" in caught.value.message


@pytest.mark.parametrize("status", [500, 503, 429])
def test_server_without_an_answer_is_not_the_loss_of_members(api: Api, status: int) -> None:
    pods = api.job_pods()
    api.status = status
    with pytest.raises(MembershipUnavailable):
        pods.members()
    assert pods.parallelism() is None


def test_parallelism_is_that_of_the_job(api: Api) -> None:
    assert api.job_pods().parallelism() == 3
