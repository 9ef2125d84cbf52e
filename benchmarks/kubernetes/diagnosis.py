"""Pods that cannot run: the time until users see the reason, as Kubernetes words it.

For nodes, the job record has it, which `elasticdl jobs status` shows: a worker that fits on no machine, and a parameter
server whose image does not exist. The clock starts when a watch from outside sees the pod. For a master, the command
that submits the job prints it, and the clock starts with the command.

The slowest of all is compared with the target, because each must be reported in time.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass

from benchmarks.kubernetes.place import Document, Place, image, load
from benchmarks.processes import DEADLINE, Stuck, wait_until
from benchmarks.report import Result

NAME = "kubernetes"
TARGET_SECONDS = 5.0
_NO_IMAGE = "no-such-image:1"
# Polling uses the machine that is measured.
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Seconds for each kind of pod."""

    unschedulable: float
    image: float
    master: float


def run(place: Place, *, quick: bool, repeat: int) -> list[Result]:
    found = [_measure(place, f"job{number}") for number in range(min(repeat, 3))]
    slowest = [max(delays.unschedulable, delays.image, delays.master) for delays in found]
    return [
        Result(
            benchmark=NAME,
            case="pods that cannot run, until that is reported",
            unit="s",
            us=statistics.median(slowest),
            compared=f"{max(slowest):.2f} s at most",
            target=f"< {TARGET_SECONDS:g} s",
            passed=max(slowest) < TARGET_SECONDS,
            note=f"a worker without room {_median(found, 'unschedulable')}, a server without its image "
            f"{_median(found, 'image')}, both from the creation of their pod; a master without its image "
            f"{_median(found, 'master')}, from the command; {len(found)} times; {load()}",
        )
    ]


def _median(found: list[Delays], what: str) -> str:
    return f"{statistics.median(getattr(delays, what) for delays in found):.2f} s"


def _measure(place: Place, job: str) -> Delays:
    command = place.train(
        job,
        f"--image_name={image('light')}",
        "--job_command=true",
        f"--ps_image={_NO_IMAGE}",
        "--num_ps=1",
        "--num_workers=1",
        # More than any machine has.
        "--worker_resource_request=cpu=100000",
    )
    image_delay = _seconds(place, job, "ps-0", "ErrImageNeverPull: ")
    unschedulable = _seconds(place, job, "worker-0", "Unschedulable: ")
    command.communicate(timeout=DEADLINE)
    place.end(job)
    return Delays(unschedulable=unschedulable, image=image_delay, master=_master(place, f"{job}-master"))


def _seconds(place: Place, job: str, node: str, words: str) -> float:
    """Seconds from the pod until the job record has the words."""
    reported = wait_until(
        lambda: time.monotonic() if _message(place, job, node).startswith(words) else None,
        f"the record of {job} says of {node}: {words}",
        every=_LOOK_SECONDS,
    )
    made = place.wait_for(f"{job}-edljob-{node}", lambda seen: seen.kind == "ADDED", "is made")
    return reported - made.seconds


def _message(place: Place, job: str, node: str) -> str:
    selected = f"--selector=elasticdl-job-name={job}"
    records: list[Document] = json.loads(place.kubectl("get", "configmaps", selected, "--output=json"))[
        "items"
    ]
    if not records:
        return ""
    nodes = json.loads(records[0]["data"].get("status.json", "{}")).get("nodes", [])
    return next((str(each["message"]) for each in nodes if each["name"] == node), "")


def _master(place: Place, job: str) -> float:
    begun = time.monotonic()
    command = place.train(job, f"--image_name={_NO_IMAGE}", "--job_command=true")
    output, _ = command.communicate(timeout=DEADLINE)
    seconds = time.monotonic() - begun
    if "ErrImageNeverPull: " not in output:
        raise Stuck(f"{command.args!r} does not report that there is no image:\n{output}")
    # The pod is all that exists of the job.
    place.delete("pod", f"elasticdl-{job}-master")
    place.kubectl("delete", "configmap", f"elasticdl-{job}")
    return seconds
