"""A fake API server: it keeps objects as the real one does; tests say how pods end, start and are lost."""

from __future__ import annotations

import copy
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from elasticdl.catalog.kubernetes import timing
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.credentials import Credentials
from elasticdl.platforms.kubernetes.manifests import WRITTEN_AT, manifests, owned

Document = dict[str, Any]
PODS = Path(__file__).parents[1] / "platforms" / "kubernetes" / "pods"
NAMESPACE = "lab"
RECORD, MASTER = "elasticdl-job", "elasticdl-job-master"
# In the middle of an answer that is read while it comes.
BREAK_OFF = object()
SILENCE = object()
# Clients ask as often as they can.
FAST = Timing(poll_seconds=0.001, start_poll_seconds=0.001, status_poll_seconds=0.001)
Log = Callable[[dict[str, str]], Iterator[Any]]


class ApiServer:
    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Document] = {}
        # Called after each request with its method, kind and name: what happens in the cluster meanwhile.
        self.meanwhile: Callable[[str, str, str], None] = lambda method, kind, name: None
        # Asked before each request, with the same: whether it gets no answer.
        self.hangs_up: Callable[[str, str, str], bool] = lambda method, kind, name: False
        self.asked: list[tuple[str, str, str]] = []
        # Pods whose end is never confirmed.
        self.stuck: set[str] = set()
        self.logs: dict[str, Log] = {}
        # The definition of TrainingJobs is installed.
        self.has_training_jobs = False
        # By their tokens, as a TokenReview gives them; and what they may do: user, verb, resource, namespace.
        self.users: dict[str, Document] = {}
        self.grants: set[tuple[str, str, str, str]] = set()
        # Called before each request with its method and who says it is.
        self.on_authorization: Callable[[str, str], None] = lambda method, identity: None
        # Verb and resource, of this user.
        self.forbidden: set[tuple[str, str]] = set()
        self.deletions: list[tuple[str, Document]] = []
        self.log_queries: list[tuple[str, dict[str, str]]] = []
        self.over = threading.Event()
        self._version = 100
        self._lock = threading.RLock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                server.answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

            def log_message(self, *words: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()

    def kubeconfig(self, path: Path) -> Path:
        server = f"http://127.0.0.1:{self._http.server_port}"
        context = {"cluster": "c", "namespace": NAMESPACE}
        document = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": context}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    # -- what is there ---------------------------------------------------------------------------------------

    def put(self, kind: str, document: Document) -> Document:
        with self._lock:
            self._version += 1
            metadata = {"uid": f"uid-{self._version}", "creationTimestamp": "2026-11-16T05:35:09Z"}
            document = copy.deepcopy(document)
            document["metadata"] = {**metadata, **document["metadata"], "resourceVersion": str(self._version)}
            self.objects[kind, document["metadata"]["name"]] = document
            return document

    def change(self, kind: str, name: str, changes: Document) -> Document:
        with self._lock:
            return self.put(kind, _merged(self.objects[kind, name], changes))

    def submitted(self, *, with_kubectl: bool = True, **flags: Any) -> None:
        """All objects of a job called job. Those that were made with kubectl have no owner."""
        given = {"job_name": "job", "image_name": "i", "job_command": "x", "namespace": NAMESPACE, **flags}
        record, *others = manifests(JobSpec.build(**given), Credentials.make("job"))
        owner = {**self.put("configmaps", record), "kind": "ConfigMap"}
        for document in others:
            made = document if with_kubectl else owned(document, owner)
            kind = {"NetworkPolicy": "networkpolicies"}.get(document["kind"], f"{document['kind'].lower()}s")
            self.put(kind, {**made, "status": {"phase": "Pending"}})

    def master(self, **status: Any) -> None:
        self.change("pods", MASTER, {"status": status, "spec": {"nodeName": "node-0"}})

    def worker(self, number: int, **status: Any) -> None:
        pod: Document = json.loads((PODS / "running.json").read_text())
        name = f"job-edljob-worker-{number}"
        labels = {"elasticdl-job-name": "job", "elasticdl-replica-index": str(number)}
        metadata = {"name": name, "labels": {**pod["metadata"]["labels"], **labels}}
        self.put("pods", {**pod, "metadata": metadata, "status": {**pod["status"], **status}})

    def said(self, *, written: float | None = None, **status: Any) -> None:
        """By the master, in the record. `written`: when that was, by the cluster's clock."""
        when = {} if written is None else {"metadata": {"annotations": {WRITTEN_AT: str(written)}}}
        document = {"job": "job", **status}
        self.change("configmaps", RECORD, {**when, "data": {"status.json": json.dumps(document)}})

    @property
    def status(self) -> Document:
        return dict(json.loads(self.objects["configmaps", RECORD]["data"]["status.json"]))

    @property
    def desired(self) -> Desired:
        return Desired.from_text(self.objects["configmaps", RECORD]["data"]["desired.json"])

    def wants(self, desired: Desired) -> None:
        """Another user writes it into the job record."""
        self.change("configmaps", RECORD, {"data": {"desired.json": desired.to_text()}})

    # -- requests --------------------------------------------------------------------------------------------

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path, query = urlsplit(request.path).path, urlsplit(request.path).query
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        in_namespace = path.partition(f"/namespaces/{NAMESPACE}/")[2]
        # Lists of all namespaces, and kinds that have none, have the kind after the version.
        kind, _, name = (in_namespace or path.partition("/v1/")[2]).partition("/")
        name = name.removesuffix("/status")
        if "/metrics.k8s.io/" in path:
            kind = "podmetrics"
        body = json.loads(request.rfile.read(int(request.headers.get("Content-Length") or 0)) or "null")
        self.asked.append((request.command, kind, name))
        self.on_authorization(request.command, request.headers.get("Authorization") or "")
        if self.hangs_up(request.command, kind, name):
            return
        if not kind:
            # The resources of a group.
            names = ["trainingjobs"] if self.has_training_jobs and "/elasticdl.org/v1" in path else []
            _reply(request, 200, {"resources": [{"name": each} for each in names]})
            return
        if name.endswith("/log"):
            self._log(request, name.removesuffix("/log"), asked)
            return
        with self._lock:
            status, document = self._do(request.command, kind, name, asked, body)
            self.meanwhile(request.command, kind, name or str((body or {}).get("metadata", {}).get("name")))
        _reply(request, status, document)

    def _do(
        self, method: str, kind: str, name: str, query: dict[str, str], body: Any
    ) -> tuple[int, Document]:
        if kind == "selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            return 201, {"status": {"allowed": (asked["verb"], asked["resource"]) not in self.forbidden}}
        if kind == "tokenreviews":
            user = self.users.get(body["spec"]["token"])
            return 201, {"status": {"authenticated": user is not None, **({"user": user} if user else {})}}
        if kind == "subjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            part = f"/{asked['subresource']}" if "subresource" in asked else ""
            grant = (
                body["spec"]["user"],
                asked["verb"],
                asked["resource"] + part,
                asked.get("namespace", ""),
            )
            return 201, {"status": {"allowed": grant in self.grants}}
        if kind == "podmetrics" and not any(there == kind for there, _ in self.objects):
            # Without metrics-server.
            return 404, {"reason": "NotFound", "message": "the server could not find the requested resource"}
        if method == "POST":
            if (kind, body["metadata"]["name"]) in self.objects:
                message = f'{kind} "{body["metadata"]["name"]}" already exists'
                return 409, {"reason": "AlreadyExists", "message": message}
            return 201, self.put(kind, body)
        if not name:
            wanted = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
            items = [
                document
                for (there, _), document in self.objects.items()
                if there == kind and all(document["metadata"]["labels"].get(k) == v for k, v in wanted)
            ]
            return 200, {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        document = self.objects.get((kind, name))
        if document is None:
            return 404, {"reason": "NotFound", "message": f"{name} not found"}
        if method == "GET":
            return 200, document
        conditions = body.get("preconditions") or {} if method == "DELETE" else body.get("metadata") or {}
        if any(
            document["metadata"][key] != value
            for key, value in conditions.items()
            if key in ("uid", "resourceVersion")
        ):
            return 409, {"reason": "Conflict", "message": "it has changed"}
        if method == "PUT":
            return 200, self.change(
                kind, name, {key: body[key] for key in ("data", "status", "webhooks") if key in body}
            )
        if method == "PATCH":
            return 200, self.change(kind, name, body)
        self.deletions.append((name, body))
        if kind == "pods" and name in self.stuck and body.get("gracePeriodSeconds") != 0:
            leaving = {"deletionTimestamp": "2026-11-16T05:35:39Z", "deletionGracePeriodSeconds": 30}
            return 200, self.change(kind, name, {"metadata": leaving})
        return 200, self.objects.pop((kind, name))

    def _log(self, request: BaseHTTPRequestHandler, pod: str, query: dict[str, str]) -> None:
        self.log_queries.append((pod, query))
        request.protocol_version = "HTTP/1.1"
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.send_header("Connection", "close")
        request.end_headers()
        log = self.logs.get(pod)
        for piece in log(query) if log else ():
            if piece is SILENCE:
                self.over.wait()
            if piece is BREAK_OFF or piece is SILENCE:
                request.connection.close()
                return
            text = str(piece).encode()
            request.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
            request.wfile.flush()
        request.wfile.write(b"0\r\n\r\n")


def _reply(request: BaseHTTPRequestHandler, status: int, document: Document) -> None:
    text = json.dumps(document).encode()
    request.send_response(status)
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)


def ended(code: int, message: str = "", *, reason: str = "Error") -> Document:
    """The state of a container that has."""
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def container(state: Document, *, last: Document | None = None, ready: bool = False) -> list[Document]:
    return [{"name": "master", "state": state, "lastState": last or {}, "ready": ready}]


def _conditions(*, ready: str) -> list[Document]:
    return [{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": "True"}]


RUNNING: Document = {
    "phase": "Running",
    "conditions": _conditions(ready="True"),
    "containerStatuses": container({"running": {"startedAt": "2026-11-16T05:35:15Z"}}, ready=True),
}
# Its machine has lost contact with the cluster.
UNREACHABLE = {**RUNNING, "conditions": _conditions(ready="False")}


def _merged(document: Any, changes: Any) -> Any:
    if not isinstance(document, dict) or not isinstance(changes, dict):
        return changes
    return {**document, **{key: _merged(document.get(key), value) for key, value in changes.items()}}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A cluster that kubectl's configuration names, and no jobs on this machine."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))
    set_timing(monkeypatch)
    server = ApiServer()
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "kubeconfig")))
    yield server
    server.close()


def set_timing(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Of catalogs that are connected without a timing, as commands do."""
    monkeypatch.setattr(timing, "DEFAULT", dataclasses.replace(FAST, **seconds))
