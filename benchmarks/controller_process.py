"""The controller as a process with 1,000 TrainingJobs and 10,000 pods on a real API server.

Only etcd and the API server run, on Debian and as root (`python -m e2e.cluster programs`): pods "run" because their
status says so, and this benchmark writes the reports of all masters. It measures

- the time from the start of the controller until it starts a waiting job, with all other objects present;
- the time from the request that creates one more job until the pod of its master exists;
- for a minute of reports, one from each master every two seconds: the controller's share of a core, its memory, and its
  calls, which the API server counts. No other client requests the counted kinds.

etcd, the API server, the reports and the controller share the machine; the notes have the rate of reports that it
reached.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.controller_documents import (
    JOBS,
    WORKERS,
    WRITE_SECONDS,
    Document,
    report,
    running_cluster,
    training_job,
)
from benchmarks.processes import ROOT, Stuck, elasticdl, running, tail, wait_until
from benchmarks.report import Result
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.kubeconfig import Access, find_access
from elasticdl.platforms.kubernetes.naming import record_name

NAME = "controller_process"
_NAMESPACE = "team"
_SENDERS = 8
_CHANGES = 5
_STEADY_SECONDS = 60.0
# After this, the statuses of all jobs have been written once, as after any start.
_SETTLING_SECONDS = 20.0
_MANIFEST = ROOT / "elasticdl" / "manifests" / "trainingjob-crd.yaml"
_PATHS = {
    "Node": "/api/v1/nodes",
    "TrainingJob": f"/apis/elasticdl.org/v1/namespaces/{_NAMESPACE}/trainingjobs",
    "ConfigMap": f"/api/v1/namespaces/{_NAMESPACE}/configmaps",
    "Pod": f"/api/v1/namespaces/{_NAMESPACE}/pods",
}
_ROLES = ("nodes", "pods", "trainingjobs", "events", "leases", "configmaps")
_MERGE = "application/merge-patch+json"
# Method, path, body and its type.
_Request = tuple[str, str, Document, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """`calls`: per minute, by resource, including watches that ended. `reports`: per second."""

    first: float
    changes: list[float]
    steady: float
    memory: float
    reports: float
    calls: Mapping[str, float]


def run(*, quick: bool, repeat: int) -> list[Result]:
    from e2e.cluster.selfmade import SelfMade

    jobs = 20 if quick else JOBS
    usual = SelfMade.here()
    own = dataclasses.replace(usual, network=f"{usual.network}-api", run_name="run-api")
    try:
        own.up_api_server()
        found = _measured_inside(own.inside(sys.executable, "-m", __name__, str(jobs)), own.kubeconfig)
    finally:
        own.down()
    return _results(found, jobs, quick)


def _measured_inside(command: list[str], kubeconfig: str) -> Measured:
    """Runs in a process of its own, in the cluster's network."""
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        raise Stuck(f"{command!r} ended with {done.returncode}")
    return Measured(**json.loads(done.stdout))


def _results(found: Measured, jobs: int, quick: bool) -> list[Result]:
    size = f"{jobs:,} jobs, {jobs * (WORKERS + 1):,} pods"
    change = statistics.median(found.changes)
    calls = sum(found.calls.values())
    by_kind = ", ".join(f"{kind} {count:.0f}" for kind, count in found.calls.items())
    note = f"on a real API server, with {found.reports:.0f} reports of masters a second"
    rows = (
        ("from its start to the first job that it starts", "s", found.first, 30.0, note),
        (
            "one more job, until its master's pod is there",
            "s",
            change,
            2.0,
            f"slowest {max(found.changes):.2f} s",
        ),
        ("steady, share of a core", "%", found.steady, 20.0, note),
        ("peak memory", "MB", found.memory, 500.0, note),
        ("steady, calls in a minute", "", calls, None, by_kind),
    )
    return [
        Result(
            benchmark=NAME,
            case=f"{case}: {size}",
            unit=unit,
            us=value,
            target="" if limit is None else f"< {limit:g} {unit}",
            passed=None if quick or limit is None else value < limit,
            note=words,
        )
        for case, unit, value, limit, words in rows
    ]


# -- inside the cluster's network ------------------------------------------------------------------------------------


def measure(jobs: int, folder: Path) -> Measured:
    api = Api(find_access(namespace=_NAMESPACE))
    specs = _fill(api, jobs)
    _create(api, "waiting")
    log = folder / "controller.log"
    begun = time.monotonic()
    command = elasticdl("controller", f"--namespace={_NAMESPACE}", "--http_port=0")
    with running(command, log=log) as process:
        try:
            first = _until_started(api, "waiting") - begun
            _say(f"first job started after {first:.1f} s")
            time.sleep(_SETTLING_SECONDS)
            changes = []
            for number in range(_CHANGES):
                asked = _create(api, f"more-{number}")
                changes.append(_until_started(api, f"more-{number}") - asked)
            _say(f"one more job: {changes}")
            with reporting(api, specs) as count:
                # Until the first reports have arrived and the statuses of the new jobs are written.
                time.sleep(_SETTLING_SECONDS)
                worked, calls, begun = _processor_seconds(process.pid), api.counted(), time.monotonic()
                sent = count()
                time.sleep(_STEADY_SECONDS)
                seconds = time.monotonic() - begun
                worked = _processor_seconds(process.pid) - worked
                sent = count() - sent
                made = {name: after - calls[name] for name, after in api.counted().items()}
        except Stuck as error:
            raise Stuck(f"{error}\n{tail(log)}") from None
        # This benchmark makes those of the masters.
        made["configmaps"] -= sent
        return Measured(
            first=first,
            changes=changes,
            steady=100 * worked / seconds,
            memory=_peak_memory(process.pid) / 1024,
            reports=sent / seconds,
            calls={name: round(count * 60 / seconds) for name, count in made.items()},
        )


class Api:
    """Sends requests of several threads, each over its own connection."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._own = threading.local()

    def call(
        self, method: str, path: str, body: Document | None = None, content: str = "application/json"
    ) -> bytes:
        """Returns the response. Raises `Stuck` for an error; one that says "not found" is an empty response."""
        connection = self._connection()
        text = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content, **self._access.identity.headers()}
        connection.request(method, path, body=text, headers=headers)
        answer = connection.getresponse()
        found = answer.read()
        if answer.status == 404 and method == "GET":
            return b""
        if answer.status >= 400:
            raise Stuck(f"{method} {path}: {found.decode(errors='replace')[:500]}")
        return found

    def send(self, requests: Iterable[_Request]) -> None:
        with ThreadPoolExecutor(_SENDERS) as pool:
            for _ in pool.map(lambda request: self.call(*request), requests):
                pass

    def counted(self) -> dict[str, float]:
        """Returns the number of requests for each kind so far."""
        text = self.call("GET", "/metrics").decode()
        found = dict.fromkeys(_ROLES, 0.0)
        for labels, value in re.findall(r"^apiserver_request_total{(.*)} (\S+)$", text, re.MULTILINE):
            for name in _ROLES:
                if f'resource="{name}"' in labels:
                    found[name] += float(value)
        return found

    def _connection(self) -> http.client.HTTPSConnection:
        found: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if found is None:
            server = urlsplit(self._access.server)
            found = http.client.HTTPSConnection(server.netloc, context=self._access.tls, timeout=60)
            self._own.connection = found
        return found


def _fill(api: Api, jobs: int) -> list[JobSpec]:
    """Creates all objects that exist before the controller starts."""
    subprocess.run(["kubectl", "create", f"--filename={_MANIFEST}"], check=True, stdout=subprocess.DEVNULL)
    wait_until(lambda: api.call("GET", _PATHS["TrainingJob"]), "TrainingJobs are served")
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    documents, specs = running_cluster(jobs)
    by_kind: dict[str, list[Document]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
    begun = time.monotonic()
    for kind in ("Node", "TrainingJob"):
        api.send(("POST", _PATHS[kind], _new(each), "application/json") for each in by_kind[kind])
    owners = {
        each["metadata"]["name"]: each for each in json.loads(api.call("GET", _PATHS["TrainingJob"]))["items"]
    }
    api.send(
        ("POST", _PATHS["ConfigMap"], _owned(each, owners[spec.job_name]), "application/json")
        for each, spec in zip(by_kind["ConfigMap"], specs, strict=True)
    )
    api.send(("POST", _PATHS["Pod"], _new(each), "application/json") for each in by_kind["Pod"])
    for kind in ("Node", "Pod"):
        api.send(
            ("PATCH", f"{_PATHS[kind]}/{each['metadata']['name']}/status", {"status": each["status"]}, _MERGE)
            for each in by_kind[kind]
        )
    # The API server taints new machines; a controller removes the taint as soon as they are ready.
    api.send(
        ("PATCH", f"{_PATHS['Node']}/{each['metadata']['name']}", {"spec": {"taints": None}}, _MERGE)
        for each in by_kind["Node"]
    )
    _say(f"{len(documents):,} objects after {time.monotonic() - begun:.0f} s")
    return specs


def _new(document: Document) -> Document:
    """Returns the document without the fields that the API server writes."""
    kept = {key: value for key, value in document.items() if key != "status"}
    written = ("uid", "resourceVersion", "generation", "creationTimestamp", "namespace")
    metadata = {key: value for key, value in document["metadata"].items() if key not in written}
    api_version = "elasticdl.org/v1" if document["kind"] == "TrainingJob" else "v1"
    return {**kept, "apiVersion": api_version, "metadata": metadata}


def _owned(record: Document, job: Document) -> Document:
    found = _new(record)
    owner = {"apiVersion": "elasticdl.org/v1", "kind": "TrainingJob", "controller": True}
    found["metadata"]["ownerReferences"] = [
        {**owner, "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    ]
    return found


def _create(api: Api, name: str) -> float:
    """Returns the time when the request was sent."""
    document = _new(training_job(name, 1, 1))
    begun = time.monotonic()
    api.call("POST", _PATHS["TrainingJob"], document)
    return begun


def _until_started(api: Api, name: str) -> float:
    """Returns the time when the pod of the master exists."""
    path = f"{_PATHS['Pod']}/elasticdl-{name}-master"
    wait_until(lambda: api.call("GET", path), f"{name} has a master", every=0.05)
    return time.monotonic()


@contextlib.contextmanager
def reporting(api: Api, specs: list[JobSpec]) -> Iterator[Counter]:
    """Writes the reports of all masters when they are due, or as fast as the machine allows."""
    ended, counter = threading.Event(), Counter()

    def write(own: list[JobSpec]) -> None:
        done = 0
        while not ended.is_set():
            begun, done = time.monotonic(), done + 1
            for spec in own:
                if ended.is_set():
                    return
                path = f"{_PATHS['ConfigMap']}/{record_name(spec.job_name)}"
                api.call("PATCH", path, {"data": report(spec, done=1000 + done)}, _MERGE)
                counter.add()
            ended.wait(max(begun + WRITE_SECONDS - time.monotonic(), 0.0))

    threads = [threading.Thread(target=write, args=(specs[at::_SENDERS],)) for at in range(_SENDERS)]
    for thread in threads:
        thread.start()
    try:
        yield counter
    finally:
        ended.set()
        for thread in threads:
            thread.join()


class Counter:
    """Counts in several threads."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        return self._count

    def add(self) -> None:
        with self._lock:
            self._count += 1


def _processor_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _peak_memory(pid: int) -> float:
    """In KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return float(text.partition("VmHWM:")[2].split()[0])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(dataclasses.asdict(measure(int(sys.argv[1]), Path(made)))))
