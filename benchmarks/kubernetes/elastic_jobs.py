"""TrainingJobs of the light program, and a controller for them that runs on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.kubernetes.place import Document, Place, Seen, image
from benchmarks.processes import ROOT, elasticdl, running, wait_until

_DEFINITIONS = ROOT / "elasticdl" / "manifests" / "trainingjob-crd.yaml"
_NAMES = ("crd/trainingjobs.elasticdl.org", "crd/trainingjobs.paddlepaddle.org")
_PROGRAM = "light"
# Pods of these classes preempt nothing by themselves: the controller makes room for them.
PRIORITY = "benchmark-waits-for-room"


@contextlib.contextmanager
def running_controller(place: Place) -> Iterator[None]:
    """The controller leads when the block begins. Definitions that did not exist before are removed at the end."""
    were_there = _NAMES[0] in place.kubectl("get", "crd", "--output=name").replace(
        "customresourcedefinition.apiextensions.k8s.io", "crd"
    )
    place.kubectl("apply", f"--filename={_DEFINITIONS}")
    place.kubectl("wait", "--for=condition=Established", *_NAMES, "--timeout=60s")
    place.kubectl("apply", "--filename=-", text=json.dumps(_priority_class()))
    text = (Path(__file__).parent / "programs" / f"{_PROGRAM}.py").read_text()
    place.kubectl("create", "configmap", _PROGRAM, f"--from-literal=program.py={text}")
    words = (
        f"--kubeconfig={os.environ['KUBECONFIG']}",
        f"--namespace={place.namespace}",
        "--identity=benchmark",
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "controller.log"
            with running(elasticdl("controller", *words), log=log):
                wait_until(lambda: "Leading as" in log.read_text(), "the controller leads", every=0.2)
                yield
    finally:
        place.kubectl("delete", "priorityclass", PRIORITY)
        if not were_there:
            place.kubectl("delete", "--filename", str(_DEFINITIONS))


def _priority_class() -> Document:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY},
        "value": 1_000_000,
        "preemptionPolicy": "Never",
    }


def training_job(
    name: str, *, low: int, high: int, trainer: Mapping[str, str], master: Mapping[str, str]
) -> Document:
    """A job that never ends. `trainer` and `master`: their requests besides a little memory."""

    def resources(requests: Mapping[str, str]) -> Document:
        return {"requests": {"cpu": "50m", "memory": "100Mi", **requests}, "limits": {"cpu": "2"}}

    mount = {"name": _PROGRAM, "mountPath": "/programs"}
    return {
        "apiVersion": "elasticdl.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "image": image("light"),
            "fault_tolerant": True,
            "trainer": {
                "entrypoint": "BATCH_SECONDS=0.1 exec python3 /programs/program.py",
                "min-instance": low,
                "max-instance": high,
                "resources": resources(trainer),
            },
            "master": {"resources": resources(master)},
            "volumes": [{"name": _PROGRAM, "configMap": {"name": _PROGRAM}}],
            "volumeMounts": [mount],
        },
    }


def create_job(place: Place, document: Document) -> float:
    """Returns when the request was sent, by time.monotonic()."""
    return place.create(f"/apis/elasticdl.org/v1/namespaces/{place.namespace}/trainingjobs", document)


def delete_jobs(place: Place) -> None:
    """Deletes all of the namespace at once, so that none of them grows, and waits until nothing of them runs."""
    place.kubectl("delete", "trainingjobs", "--all")
    place.delete("pods", "--selector=app=elasticdl", "--ignore-not-found")


def is_pod_of(name: str, role: str, seen: Seen) -> bool:
    labels = seen.pod["metadata"].get("labels") or {}
    return (labels.get("elasticdl-job-name"), labels.get("elasticdl-replica-type")) == (name, role)
