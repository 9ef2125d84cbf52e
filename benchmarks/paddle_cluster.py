"""Paddle's Kubernetes guide on a real cluster: its Job of three pods against the same fleet program started by hand.

Both sides have pods of the image that `paddle/k8s_train` builds, and a folder of the machine that all pods mount. By
hand, three plain pods wait until all of them run; then each starts Paddle's own launcher with the addresses of all,
without our code. On both sides, time counts from the moment when the last pod runs.

Needs a cluster whose nodes are on this machine, as `kubernetes` does.

    python -m e2e.cluster up
    python -m benchmarks paddle_cluster
"""

from __future__ import annotations

import compileall
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.paddle_guide import (
    NODES,
    PROGRAM,
    Run,
    compared,
    make_job_folder,
    program_variables,
    read,
    take_turns,
)
from benchmarks.parameter_servers import progress
from benchmarks.processes import ROOT, Stuck, wait_until
from benchmarks.report import Result

if TYPE_CHECKING:
    from benchmarks.kubernetes.place import Place, Seen

NAME = "paddle_cluster"
# Interval of reading the files of a run.
_LOOK_SECONDS = 0.5
_REPOSITORY = "registry.example.com/benchmark"
_IMAGE = f"{_REPOSITORY}/paddle:mypaddle"
# As in the guide: where pods mount their shared folder.
_MOUNTED = Path("/home/jobpath")
_SERVER_PORT, _TRAINER_PORT = 7164, 7165
# The addresses are known only when all pods run.
_BY_HAND = f"""
until [ -e {_MOUNTED}/addresses ]; do sleep 0.05; done
. {_MOUNTED}/addresses
cd /tmp
exec python3 -m paddle.distributed.launch --servers=$servers --trainers=$trainers {_MOUNTED}/train.py
"""
Document = dict[str, Any]


def run(*, quick: bool, repeat: int) -> list[Result]:
    # The images contain this package, but not the code that creates a cluster.
    from benchmarks.kubernetes.place import Place, enter_with, load
    from e2e.cluster.guide_images import provide_guide_images

    enter_with(lambda cluster: provide_guide_images(cluster, _REPOSITORY))
    with Place.new() as place:
        place.kubectl("apply", "-f", str(ROOT / "paddle/k8s_train/rbac.yaml"))
        sides = _Sides(place=place)
        # Not counted: a machine reads an image from its disk when it first runs it.
        for side in (sides.job, sides.by_hand):
            side(2)
        ours, peer = take_turns(sides.job, sides.by_hand, batches=20 if quick else 100, repeat=repeat)
        print(load())
    return compared(ours, peer, benchmark=NAME, what="three pods", since="from the moment when all pods run")


@dataclass(kw_only=True)
class _Sides:
    place: Place
    _runs: int = field(default=0)

    def job(self, batches: int) -> Run:
        """The guide's Job, with a fleet program as its configuration."""
        name = self._name("job")
        with _shared_folder() as home:
            make_job_folder(home / name)
            job: Document = yaml.safe_load((ROOT / "paddle/k8s_train/job.yaml").read_text())
            job["metadata"]["name"] = name
            job["spec"]["backoffLimit"] = 0
            pod = job["spec"]["template"]["spec"]
            pod["volumes"][0]["hostPath"]["path"] = str(home)
            (container,) = pod["containers"]
            container["image"] = _IMAGE
            variables = {each["name"]: each["value"] for each in container["env"]} | {
                "JOB_NAME": name,
                "JOB_NAMESPACE": self.place.namespace,
                "TRAIN_CONFIG_DIR": "config",
                "PADDLE_TRAIN_CONFIG": "./train.py",
                "CONF_PADDLE_PORT": str(_SERVER_PORT),
                # One server per pod, as by hand.
                "CONF_PADDLE_PORTS_NUM": "1",
                "CONF_PADDLE_PORTS_NUM_SPARSE": "0",
            }
            container["env"] = _environment(variables | _program_variables(batches))

            def ours(seen: Seen) -> bool:
                return bool(seen.pod["metadata"].get("labels", {}).get("job-name") == name)

            since = self.place.now()
            self._create(job)
            started = max(seen.seconds for seen in self._wait_for_all("Running", ours, since))
            self._wait_for_all("Succeeded", ours, since)
            found = read(home / "progress", started)
            self.place.kubectl("delete", "job", name)
        return found

    def by_hand(self, batches: int) -> Run:
        """Plain pods with Paddle's launcher."""
        names = [self._name("hand") for _ in range(NODES)]
        with _shared_folder() as home:
            (home / "train.py").write_text(PROGRAM)
            container = {
                "name": "main",
                "image": _IMAGE,
                "command": ["bash", "-c", _BY_HAND],
                "env": _environment(_program_variables(batches)),
                "volumeMounts": [{"name": "jobpath", "mountPath": str(_MOUNTED)}],
            }
            spec = {
                "containers": [container],
                "restartPolicy": "Never",
                "volumes": [{"name": "jobpath", "hostPath": {"path": str(home)}}],
            }
            since = self.place.now()
            for name in names:
                self._create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
            pods = self._wait_for_all("Running", lambda seen: seen.name in names, since)
            started = max(seen.seconds for seen in pods)
            _write_addresses(home / "addresses", [seen.pod["status"]["podIP"] for seen in pods])
            # Paddle's servers do not exit when their trainers do.
            wait_until(
                lambda: self._has_trained(home / "progress", batches, names),
                f"{', '.join(names)} have trained",
                every=_LOOK_SECONDS,
            )
            found = read(home / "progress", started)
            self.place.delete("pods", *names)
        return found

    def _has_trained(self, folder: Path, batches: int, names: list[str]) -> bool:
        """Raises if one of the pods has failed."""
        for seen in self.place.seen():
            if seen.name in names and seen.phase == "Failed":
                raise self._failed(seen.name)
        return all(len(progress.read(folder / f"worker-{number}")) >= batches for number in range(NODES))

    def _failed(self, pod: str) -> Stuck:
        return Stuck(f"{pod} has failed:\n{self.place.kubectl('logs', pod)}")

    def _name(self, side: str) -> str:
        self._runs += 1
        return f"{side}-{self._runs}"

    def _create(self, document: Document) -> None:
        self.place.kubectl("create", "--filename=-", text=json.dumps(document))

    def _wait_for_all(self, phase: str, ours: Callable[[Seen], bool], since: int) -> list[Seen]:
        """Returns when each of the pods was first seen in that phase. Raises if one of them fails."""
        found: dict[str, Seen] = {}

        def next_one(seen: Seen) -> bool:
            return ours(seen) and seen.name not in found and seen.phase in (phase, "Failed")

        while len(found) < NODES:
            seen = self.place.wait(next_one, f"{NODES} pods are {phase}", since=since)
            if seen.phase == "Failed":
                raise self._failed(seen.name)
            found[seen.name] = seen
        return list(found.values())


@contextmanager
def _shared_folder() -> Iterator[Path]:
    """Creates the folder for the pods of one run, with the program's modules."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "progress").mkdir()
        modules = home / "modules" / "benchmarks"
        shutil.copytree(ROOT / "benchmarks", modules, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(str(modules), quiet=1)
        yield home


def _program_variables(batches: int) -> dict[str, str]:
    return program_variables(
        progress_folder=_MOUNTED / "progress", batches=batches, python_path=str(_MOUNTED / "modules")
    )


def _environment(variables: dict[str, str]) -> list[Document]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _write_addresses(path: Path, addresses: list[str]) -> None:
    lists = {"servers": _SERVER_PORT, "trainers": _TRAINER_PORT}
    part = path.with_suffix(".part")
    part.write_text(
        "".join(
            f"{name}={','.join(f'{address}:{port}' for address in addresses)}\n"
            for name, port in lists.items()
        )
    )
    part.rename(path)
