"""From `elasticdl train` to the first batch, by phase, beside a bare pod of the same image with a plain script.

Some phases belong to the scheduler (a pod gets a machine), to the machine (its container starts) and to the framework
(it is imported, and builds the model, which initializes it). Everything else is ours and is compared with the target:
the command until the pod of the master exists, the master from the start of its process to the worker's pod, the worker
from the start of its process to its first batch.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from benchmarks import training
from benchmarks.kubernetes.place import GLANCE_SECONDS, Place, finish, image, load
from benchmarks.processes import wait_until
from benchmarks.report import Result
from benchmarks.stamps import FOLDER, PRINTED, Stamps

NAME = "kubernetes"
TARGET_SECONDS = 2.0
_DATA = "/data/images-0.recordio"
# The usual flags of a job.
_RESOURCES = {"cpu": "1", "memory": "1Gi"}


@dataclass(frozen=True, kw_only=True)
class Way:
    """Seconds of each phase, in order. A bare pod has no master."""

    submit: float
    master_schedule: float = 0.0
    master_container: float = 0.0
    master: float = 0.0
    schedule: float
    container: float
    interpreter: float
    framework: float
    first_shard: float
    batch: float
    # Processor time of our own phases: on a busy machine it is more reliable than the clock.
    worked: float = dataclasses.field(metadata={"part": False})

    @property
    def own(self) -> float:
        return self.submit + self.master + self.interpreter + self.first_shard

    @property
    def whole(self) -> float:
        return float(sum(getattr(self, name) for name in PARTS))


PARTS = tuple(part.name for part in dataclasses.fields(Way) if part.metadata.get("part", True))


def run(place: Place, *, quick: bool, repeat: int) -> list[Result]:
    with training.images(2) as data:
        place.kubectl("create", "configmap", "images", f"--from-file={data}/images-0.recordio")
    results = []
    for framework in training.FRAMEWORKS:
        # Not counted: a machine reads an image from its disk when it first runs it.
        _job(place, framework, "warm")
        _bare(place, framework, "warm")
        jobs, bare = [], []
        for number in range(repeat):
            jobs.append(_job(place, framework, str(number)))
            bare.append(_bare(place, framework, str(number)))
        results += [_own(framework, jobs, bare), _whole(framework, jobs, bare)]
    return results


def _own(framework: str, jobs: list[Way], bare: list[Way]) -> Result:
    ours = _median(jobs, lambda way: way.own)
    return Result(
        benchmark=NAME,
        case=f"{framework}, our own part up to the first batch",
        unit="s",
        us=ours,
        peer=_median(bare, lambda way: way.own),
        compared=f"{ours:.2f} s",
        target=f"≤ {TARGET_SECONDS:g} s",
        passed=ours <= TARGET_SECONDS,
        note=f"processor time of it {_median(jobs, lambda way: way.worked):.2f} s (the whole command, the master, the "
        f"worker without the framework), peer {_median(bare, lambda way: way.worked):.2f} s; {_parts(jobs)}; the peer "
        f"is kubectl with a bare pod of the plain script: {_parts(bare)}; {load()}",
    )


def _whole(framework: str, jobs: list[Way], bare: list[Way]) -> Result:
    ours, peer = (_median(ways, lambda way: way.whole) for ways in (jobs, bare))
    return Result(
        benchmark=NAME,
        case=f"{framework}, from the command to the end of the first batch",
        unit="s",
        us=ours,
        peer=peer,
        compared=f"{ours - peer:+.2f} s, {ours / peer:.2f}×",
        note="the peer is a bare pod; a job has two pods, which are scheduled and started one after the other",
    )


def _median(ways: list[Way], value: Callable[[Way], float]) -> float:
    return statistics.median(map(value, ways))


def _parts(ways: list[Way]) -> str:
    medians = {name: _median(ways, attrgetter(name)) for name in PARTS}
    return ", ".join(
        f"{name.replace('_', ' ')} {seconds:.2f}" for name, seconds in medians.items() if seconds
    )


def _job(place: Place, framework: training.Framework, run: str) -> Way:
    job = f"{framework}-{run}"
    resources = ",".join(f"{name}={amount}" for name, amount in _RESOURCES.items())
    master, worker = f"elasticdl-{job}-master", f"elasticdl-{job}-worker-0"
    begun, worked = time.monotonic(), _work_of_commands()
    command = place.train(
        job,
        f"--image_name={image(framework)}",
        "--model_zoo=/benchmarks/zoo",
        f"--model_def=mnist.{framework}_cnn.custom_model",
        f"--training_data={_DATA}",
        "--volume=config_map=images,mount_path=/data",
        f"--minibatch_size={training.BATCH}",
        "--distribution_strategy=Local",
        # So that its master still exists when its start time is read.
        "--num_epochs=1000000",
        f"--envs={FOLDER}={PRINTED}",
        f"--worker_resource_request={resources}",
    )
    # Only the watch polls during the run, because the cluster uses this machine, too.
    place.wait_for(worker, lambda seen: seen.phase not in ("Pending", "Unknown"), "runs")
    finish(command)
    worked = _work_of_commands() - worked
    stamps = _stamps(place, worker)
    program = "from benchmarks.stamps import process_started\nprint(process_started(pid), worked)\n"
    started, master_worked = map(float, place.in_master(job, program).split())
    place.end(job)
    made, scheduled = _made(place, master), _scheduled(place, master)
    return Way(
        submit=made - begun,
        master_schedule=scheduled - made,
        master_container=started - scheduled,
        master=_made(place, worker) - started,
        worked=worked + master_worked + _work_before(stamps),
        **_pod(place, worker, stamps),
    )


def _bare(place: Place, framework: training.Framework, run: str) -> Way:
    name = f"plain-{framework}-{run}"
    arguments = training.plain_arguments(framework, _DATA)
    container = {
        "name": "plain",
        "image": image(framework),
        "imagePullPolicy": "Never",
        "command": ["python3", *arguments],
        "env": [{"name": FOLDER, "value": PRINTED}],
        "resources": {"requests": _RESOURCES, "limits": _RESOURCES},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "volumes": [{"name": "data", "configMap": {"name": "images"}}],
        },
    }
    begun, worked = time.monotonic(), _work_of_commands()
    place.kubectl("create", "-f", "-", text=json.dumps(pod))
    worked = _work_of_commands() - worked
    place.wait_for(name, lambda seen: seen.phase not in ("Pending", "Unknown"), "runs")
    stamps = _stamps(place, name)
    place.delete("pod", name)
    return Way(
        submit=_made(place, name) - begun,
        worked=worked + _work_before(stamps),
        **_pod(place, name, stamps),
    )


def _work_of_commands() -> float:
    """Processor time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _work_before(stamps: Stamps) -> float:
    """Processor time of a training process up to its first batch, without the framework's import."""
    return stamps.begins[0].worked - sum(s.worked for s in stamps.imports[: stamps.early_imports])


def _made(place: Place, pod: str) -> float:
    return place.wait_for(pod, lambda seen: seen.kind == "ADDED", "is made").seconds


def _scheduled(place: Place, pod: str) -> float:
    return place.wait_for(pod, lambda seen: seen.scheduled, "has a machine").seconds


def _stamps(place: Place, pod: str) -> Stamps:
    def found() -> Stamps | None:
        stamps = place.stamps(pod)
        return stamps if stamps.ends else None

    return wait_until(found, f"{pod} has done a batch", every=GLANCE_SECONDS)


def _pod(place: Place, pod: str, stamps: Stamps) -> dict[str, Any]:
    made, scheduled = _made(place, pod), _scheduled(place, pod)
    start, begin = stamps.starts[0].seconds, stamps.begins[0].seconds
    interpreter = stamps.importing[0].seconds - start
    return {
        "schedule": scheduled - made,
        "container": start - scheduled,
        "interpreter": interpreter,
        "framework": stamps.import_seconds,
        "first_shard": begin - start - interpreter - stamps.import_seconds,
        "batch": stamps.ends[0].seconds - begin,
    }
