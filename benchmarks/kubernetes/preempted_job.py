"""The time until a pod of a higher priority replaces a whole job, which saves a checkpoint first.

The job trains a PyTorch model at its minimum, so it cannot shrink; the pod needs the room of its worker. The clock
starts when the scheduler's report that the pod does not fit is seen. Each time, the job's folder must have a new
checkpoint, and the job must continue from it when the pod is gone.

The pods compete for an extended resource of this measurement. The folder is on this machine.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from benchmarks import training
from benchmarks.kubernetes.controller_latency import SLOT, has_no_room, urgent_pod
from benchmarks.kubernetes.devices import offered
from benchmarks.kubernetes.elastic_jobs import delete_jobs
from benchmarks.kubernetes.place import Document, Place, finish, image, load
from benchmarks.kubernetes.watched import Change, Watched
from benchmarks.processes import Stuck
from benchmarks.report import Result
from benchmarks.stamps import FOLDER, PRINTED
from elasticdl.simulator.run_result import percentile

NAME = "elastic_cluster"
IMAGES = ("torch",)
JOB = "preempted"
STOPPING_SECONDS, RUNNING_SECONDS = 2.0, 15.0
_DATA = "/data/images-0.recordio"


def run(place: Place, *, quick: bool, repeat: int) -> list[Result]:
    with training.images(2) as data:
        place.kubectl("create", "configmap", "images", f"--from-file={data}/images-0.recordio")
    with tempfile.TemporaryDirectory() as folder, offered(place, SLOT, 1):
        # The containers run as another user.
        Path(folder).chmod(0o777)
        found = _preempt(place, Path(folder), 1 if quick else repeat)
        delete_jobs(place)
    stopping, running = zip(*found, strict=True)
    return [
        _result("until it has to save a checkpoint", list(stopping), STOPPING_SECONDS, quick),
        _result("until the pod runs", list(running), RUNNING_SECONDS, quick),
    ]


def _result(case: str, seconds: list[float], limit: float, quick: bool) -> Result:
    median = statistics.median(seconds)
    return Result(
        benchmark=NAME,
        case=f"higher priority in the place of a whole job with a model, {case}",
        unit="s",
        us=median,
        compared=f"p95 {percentile(sorted(seconds), 95.0):.2f} s",
        target=f"< {limit:g} s",
        passed=None if quick else median < limit,
        note=f"median and 95th percentile of {len(seconds)}, slowest {max(seconds):.2f} s; {load()}",
    )


def _preempt(place: Place, folder: Path, times: int) -> list[tuple[float, float]]:
    """Seconds until the job is asked to pause, and until the pod runs."""
    found = []
    with Watched.opened(f"/api/v1/namespaces/{place.namespace}/configmaps") as records:
        mark, done = records.mark(), 0
        _submit(place, folder)
        for number in range(times):
            trained = records.wait(lambda change: _samples(change) > done, f"{JOB} trains", since=mark)  # noqa: B023
            mark, since, pod, before = records.mark(), place.now(), f"urgent-{number}", _checkpoints(folder)
            place.create(f"/api/v1/namespaces/{place.namespace}/pods", urgent_pod(pod))
            refused = place.wait_for(pod, has_no_room, "finds no room", since=since)
            paused = records.wait(_is_paused, f"{JOB} is to save a checkpoint", since=mark)
            runs = place.wait_for(pod, lambda seen: seen.phase == "Running", "runs", since=since)
            if not _checkpoints(folder) - before:
                raise Stuck(f"{JOB} was stopped without a checkpoint")
            found.append((paused.seconds - refused.seconds, runs.seconds - refused.seconds))
            mark, done = records.mark(), max(done, _samples(trained))
            place.delete("pod", pod)
    return found


def _submit(place: Place, folder: Path) -> None:
    """Submits a TrainingJob: it has a range of sizes, but only its minimum fits."""
    finish(
        place.train(
            JOB,
            f"--image_name={image('torch')}",
            "--model_zoo=/benchmarks/zoo",
            "--model_def=mnist.torch_cnn.custom_model",
            f"--training_data={_DATA}",
            f"--volume=config_map=images,mount_path=/data;host_path={folder},mount_path=/saved",
            "--checkpoint_dir=/saved/checkpoints",
            f"--minibatch_size={training.BATCH}",
            "--num_epochs=1000000",
            "--num_ps=1",
            "--min_workers=1",
            "--max_workers=2",
            "--ps_resource_request=cpu=0.2,memory=512Mi",
            f"--worker_resource_request=cpu=0.5,memory=1Gi,{SLOT}=1",
            # The models of the benchmarks' zoo stamp their batches.
            f"--envs={FOLDER}={PRINTED}",
        )
    )


def _checkpoints(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("checkpoints/version-*")}


def _samples(change: Change) -> int:
    status = _entry(change, "status.json")
    return int(status.get("samples_done") or 0) if status.get("state") == "running" else 0


def _is_paused(change: Change) -> bool:
    return bool(_entry(change, "desired.json").get("pause"))


def _entry(change: Change, name: str) -> Document:
    if change.name != f"elasticdl-{JOB}":
        return {}
    return dict(json.loads((change.document.get("data") or {}).get(name) or "{}"))
