"""The reaction times of the controller to events in the cluster.

- A TrainingJob is created: until the pod of its master exists. The clock starts with the request.
- A pod of a higher priority does not fit beside an elastic job at its maximum: until the job's master drains a victim,
  and until the pod runs. The clock starts when the scheduler's report that the pod does not fit is seen. The pod's
  class has `preemptionPolicy: Never`, so the scheduler itself preempts nothing: the controller makes room.

The pods compete for an extended resource of this measurement, on one node. Watches from outside have the times.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from benchmarks.kubernetes.devices import offered
from benchmarks.kubernetes.elastic_jobs import PRIORITY, create_job, delete_jobs, is_pod_of, training_job
from benchmarks.kubernetes.place import Document, Place, Seen, image, load
from benchmarks.kubernetes.watched import Change, Watched
from benchmarks.report import Result
from elasticdl.simulator.run_result import percentile

NAME = "elastic_cluster"
SLOT = "elasticdl.benchmark/slot"
SLOTS = 4
MASTER_SECONDS, DRAINING_SECONDS, RUNNING_SECONDS = 1.0, 2.0, 15.0
_TIMES = 4


def run(place: Place, *, quick: bool, repeat: int) -> list[Result]:
    times = 2 if quick else _TIMES * repeat
    created = [_until_master(place, f"job-{number}") for number in range(times)]
    with offered(place, SLOT, SLOTS):
        yields = _until_room(place, times)
    draining, running = ([each[part] for each in yields] for part in (0, 1))
    return [
        _result("TrainingJob created, until its master's pod is there", created, MASTER_SECONDS, quick),
        _result("higher priority without room, until a victim drains", draining, DRAINING_SECONDS, quick),
        _result("higher priority without room, until its pod runs", running, RUNNING_SECONDS, quick),
    ]


def _result(case: str, seconds: Sequence[float], limit: float, quick: bool) -> Result:
    median = statistics.median(seconds)
    return Result(
        benchmark=NAME,
        case=case,
        unit="s",
        us=median,
        compared=f"p95 {percentile(sorted(seconds), 95.0):.2f} s",
        target=f"< {limit:g} s",
        passed=None if quick else median < limit,
        note=f"median and 95th percentile of {len(seconds)}, slowest {max(seconds):.2f} s; {load()}",
    )


def _until_master(place: Place, name: str) -> float:
    since = place.now()
    begun = create_job(place, training_job(name, low=1, high=1, trainer={}, master={}))
    made = place.wait(lambda seen: is_pod_of(name, "master", seen), f"{name} has a master", since=since)
    place.kubectl("delete", "trainingjob", name)
    # Its process has hardly started: nothing is lost, and the next measurement does not wait for it.
    place.kubectl("delete", "pods", f"--selector=elasticdl-job-name={name}", "--grace-period=0", "--force")
    place.wait_for(made.name, lambda seen: seen.kind == "DELETED", "is gone", since=since)
    return made.seconds - begun


def _until_room(place: Place, times: int) -> list[tuple[float, float]]:
    """Seconds until a victim drains and until the pod runs."""
    name, found = "elastic", []
    with Watched.opened(f"/api/v1/namespaces/{place.namespace}/configmaps") as records:
        mark = records.mark()
        create_job(place, training_job(name, low=1, high=SLOTS, trainer={SLOT: "1"}, master={}))
        for number in range(times):
            records.wait(
                lambda change: _ready(name, change) == SLOTS, f"{name} is at its maximum", since=mark
            )
            mark, since, pod = records.mark(), place.now(), f"urgent-{number}"
            place.create(f"/api/v1/namespaces/{place.namespace}/pods", urgent_pod(pod))
            refused = place.wait_for(pod, has_no_room, "finds no room", since=since)
            drains = records.wait(lambda change: _drains(name, change), f"{name} drains a worker", since=mark)
            runs = place.wait_for(pod, lambda seen: seen.phase == "Running", "runs", since=since)
            found.append((drains.seconds - refused.seconds, runs.seconds - refused.seconds))
            mark = records.mark()
            place.delete("pod", pod)
        delete_jobs(place)
    return found


def _ready(name: str, change: Change) -> int:
    """Returns the number of workers that train and are not draining."""
    nodes = _nodes(name, change)
    return sum(node["phase"] == "running" and node["joined"] and not node["draining"] for node in nodes)


def _drains(name: str, change: Change) -> bool:
    return any(node["draining"] for node in _nodes(name, change))


def _nodes(name: str, change: Change) -> list[Document]:
    """Returns the workers in the status of the job, if the change is of its job record."""
    if change.name != f"elasticdl-{name}":
        return []
    status = json.loads((change.document.get("data") or {}).get("status.json") or "{}")
    return [node for node in status.get("nodes", []) if node["role"] == "worker"]


def has_no_room(seen: Seen) -> bool:
    conditions = seen.pod["status"].get("conditions") or []
    return any(each.get("reason") == "Unschedulable" for each in conditions)


def urgent_pod(name: str) -> Document:
    slot = {SLOT: "1"}
    container = {
        "name": "main",
        "image": image("light"),
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "resources": {"requests": slot, "limits": slot},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "priorityClassName": PRIORITY,
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [container],
        },
    }
