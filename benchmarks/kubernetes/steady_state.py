"""The cost of a job's master in steady training: processor time, and calls to the API server.

A hundred workers do one batch a second each. The peers show what the figures depend on: one worker of the same kind,
and one that goes through its data a hundred times as fast. The API server counts the calls: a FlowSchema for the
account of this namespace's masters gives them a counter of their own. If the server counts watches too, they are
included.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.kubernetes.place import Place, load
from benchmarks.processes import DEADLINE, Stuck, wait_until
from benchmarks.report import Result

NAME = "kubernetes"
WORKERS = 100
TARGET = 0.05
# Calls with so many workers, relative to one: they depend on changes, not on the number of pods.
CALLS_TARGET = 1.5
MEASURED_SECONDS = 60.0
# From the moment when all train: their start is not measured.
SETTLING_SECONDS = 15.0
_PRIORITY_LEVEL = "workload-low"
_COUNTER = "apiserver_flowcontrol_dispatched_requests_total"


@dataclass(frozen=True, kw_only=True)
class Load:
    # Of one core.
    share: float
    calls_a_minute: float
    samples_a_second: float
    memory: float


def run(place: Place, *, quick: bool, repeat: int) -> list[Result]:
    workers = 10 if quick else WORKERS
    seconds = MEASURED_SECONDS / 6 if quick else MEASURED_SECONDS
    with _counted(place) as schema:
        many = _measure(place, schema, "many", workers=workers, batch_seconds=1.0, seconds=seconds)
        busy = load()
        one = _measure(place, schema, "one", workers=1, batch_seconds=1.0, seconds=seconds)
        fast = _measure(place, schema, "fast", workers=1, batch_seconds=0.01, seconds=seconds)
    # Less than one call a minute counts as one.
    calls = many.calls_a_minute / max(one.calls_a_minute, 1.0)
    return [
        Result(
            benchmark=NAME,
            case=f"master of {workers} workers, share of a core",
            unit="%",
            us=many.share * 100,
            peer=one.share * 100,
            compared=f"{many.share:.1%}",
            target=f"< {TARGET:.0%}",
            passed=many.share < TARGET,
            note=f"over {seconds:.0f} s, at {many.samples_a_second:.0f} samples/s; the "
            f"peer is that of one such worker; memory {many.memory / 1e6:.0f} MB, peer {one.memory / 1e6:.0f} MB; "
            f"{busy}",
        ),
        Result(
            benchmark=NAME,
            case=f"master of {workers} workers, calls to the API server",
            unit="a minute",
            us=many.calls_a_minute,
            peer=one.calls_a_minute,
            compared=f"{calls:.2f}×",
            target=f"≤ {CALLS_TARGET:g}×",
            passed=calls <= CALLS_TARGET,
            note="the peer is the master of one such worker; with one that is a hundred times as fast "
            f"({fast.samples_a_second:.0f} samples/s) it is {fast.calls_a_minute:.0f} a minute and {fast.share:.1%} "
            "of a core",
        ),
    ]


def _measure(
    place: Place, schema: str, job: str, *, workers: int, batch_seconds: float, seconds: float
) -> Load:
    place.submit(
        job,
        "light",
        f"--num_workers={workers}",
        f"--envs=BATCH_SECONDS={batch_seconds}",
        "--worker_resource_request=cpu=0.05,memory=100Mi",
        "--worker_resource_limit=cpu=1,memory=200Mi",
    )
    wait_until(
        lambda: _training(place, job) == workers,
        f"{workers} workers train",
        every=2.0,
        # A small machine needs some seconds to start a pod.
        seconds=DEADLINE + 10 * workers,
    )
    time.sleep(SETTLING_SECONDS)
    before, calls = _look(place, job), _calls(place, schema)
    samples = _status(place, job)["samples_done"]
    time.sleep(seconds)
    after, later = _look(place, job), _calls(place, schema)
    done = _status(place, job)["samples_done"] - samples
    place.end(job)
    took = after["now"] - before["now"]
    return Load(
        share=(after["worked"] - before["worked"]) / took,
        calls_a_minute=(later - calls) * 60.0 / took,
        samples_a_second=done / took,
        memory=after["memory"],
    )


def _status(place: Place, job: str) -> dict[str, Any]:
    data = json.loads(place.kubectl("get", "configmap", f"elasticdl-{job}", "--output=json"))["data"]
    return dict(json.loads(data.get("status.json", "{}")))


def _training(place: Place, job: str) -> int:
    return sum(node["shards"] > 0 for node in _status(place, job).get("nodes", []))


def _look(place: Place, job: str) -> dict[str, float]:
    """Reads the figures of the master's process."""
    program = (
        "import json\n"
        "memory = int(stat[21]) * os.sysconf('SC_PAGE_SIZE')\n"
        "print(json.dumps({'now': time.monotonic(), 'worked': worked, 'memory': memory}))\n"
    )
    return dict(json.loads(place.in_master(job, program)))


@contextlib.contextmanager
def _counted(place: Place) -> Iterator[str]:
    """The name under which the API server counts the calls of the masters of this namespace."""
    versions = place.kubectl("api-versions").split()
    found = [version for version in versions if version.startswith("flowcontrol.apiserver.k8s.io/")]
    if not found:
        raise Stuck("this cluster cannot count calls by account: it has no FlowSchemas")
    account = {"namespace": place.namespace, "name": "elasticdl"}
    rules = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}],
    }
    schema = {
        # The order of versions does not matter: any of them works.
        "apiVersion": found[0],
        "kind": "FlowSchema",
        "metadata": {"name": place.namespace},
        "spec": {
            "priorityLevelConfiguration": {"name": _PRIORITY_LEVEL},
            # Before the ones that match all accounts.
            "matchingPrecedence": 500,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rules],
        },
    }
    place.kubectl("apply", "-f", "-", text=json.dumps(schema))
    try:
        yield place.namespace
    finally:
        place.kubectl("delete", "flowschema", place.namespace)


def _calls(place: Place, schema: str) -> float:
    text = place.kubectl("get", "--raw", "/metrics")
    counts = re.findall(rf'^{_COUNTER}{{[^}}]*"{schema}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return sum(map(float, counts))
