"""The environment of a measurement: a namespace of a real cluster, `kubectl`, and a watch over its pods with times."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks import stamps
from benchmarks.processes import DEADLINE, ROOT, Stuck, elasticdl
from e2e.cluster.images import NAME
from e2e.cluster.places import Cluster, find_cluster, provide_images, schedulable
from e2e.cluster.selfmade import SelfMade
from elasticdl.platforms.kubernetes.kubeconfig import find_access

Document = dict[str, Any]
# Polling uses the machine, and on a cluster calls its API server.
GLANCE_SECONDS = 0.5

TAG = "benchmark"
_MANIFESTS = ROOT / "elasticdl" / "manifests"


def enter(images: Iterable[str]) -> None:
    """Loads these images of this checkout into the cluster, and enters its network with this process."""
    enter_with(lambda cluster: provide_images(cluster, images, tag=TAG))


def enter_with(provide: Callable[[Cluster], object]) -> None:
    """As `enter`, with images of another kind: `provide` gives them to the cluster."""
    cluster = find_cluster()
    if isinstance(cluster, SelfMade) and not cluster.is_up:
        raise SystemExit(
            "There is no cluster to measure on: start one with `python -m e2e.cluster up`, or name one in KUBECONFIG."
        )
    provide(cluster)
    cluster.enter()
    os.environ["KUBECONFIG"] = cluster.kubeconfig


def image(kind: str) -> str:
    return f"{NAME}:{kind}-{TAG}"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A change of a pod, and when it was received, by time.monotonic()."""

    seconds: float
    kind: str
    pod: Document

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def leaving(self) -> bool:
        return "deletionTimestamp" in self.pod["metadata"]

    @property
    def ended(self) -> bool:
        states = [container["state"] for container in self.pod["status"].get("containerStatuses", [])]
        return self.kind == "DELETED" or bool(states and all("terminated" in state for state in states))

    @property
    def scheduled(self) -> bool:
        return bool(self.pod["spec"].get("nodeName"))

    @property
    def phase(self) -> str:
        return str(self.pod["status"].get("phase"))


class Place:
    """One namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._seen: list[Seen] = []
        self._more = threading.Condition()

    @classmethod
    @contextlib.contextmanager
    def new(cls) -> Iterator[Place]:
        place = cls(f"benchmark-{uuid.uuid4().hex[:8]}")
        place.kubectl("create", "namespace", place.namespace)
        watching = None
        try:
            place.kubectl("apply", "-f", str(_MANIFESTS / "elasticdl-rbac.yaml"))
            for priority in ("high", "low"):
                place.kubectl("apply", "-f", str(_MANIFESTS / f"priority-{priority}.yaml"))
            path = f"/api/v1/namespaces/{place.namespace}/pods?watch=true"
            watching = subprocess.Popen(["kubectl", "get", "--raw", path], stdout=subprocess.PIPE, text=True)
            threading.Thread(target=place._watch, args=(watching,), daemon=True).start()
            yield place
        finally:
            if watching is not None:
                watching.kill()
                watching.wait()
            place.kubectl("delete", "namespace", place.namespace)

    # -- commands --------------------------------------------------------------------------------------------

    def kubectl(self, *words: str, text: str = "") -> str:
        command = ["kubectl", f"--namespace={self.namespace}", *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Stuck(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def change(self, path: str, changes: Document) -> None:
        """A merge patch, also of what older versions of `kubectl` cannot name, such as the status of a node."""
        content = {"Content-Type": "application/merge-patch+json"}
        with _api() as api:
            answer = api.patch(path, content=json.dumps(changes), headers=content)
        if answer.is_error:
            raise Stuck(f"{path}: {answer.text}")

    def create(self, path: str, document: Document) -> float:
        """Creates an object without `kubectl`, which takes part of a second to start. Returns when the request was
        sent, by time.monotonic().
        """
        with _api() as api:
            # Connects before the clock starts.
            api.get("/readyz")
            begun = time.monotonic()
            answer = api.post(path, json=document)
        if answer.is_error:
            raise Stuck(f"{path}: {answer.text}")
        return begun

    def machines(self) -> list[str]:
        """Returns the schedulable nodes."""
        return schedulable(json.loads(self.kubectl("get", "nodes", "--output=json"))["items"])

    def train(self, job: str, *flags: str) -> subprocess.Popen[str]:
        """Starts the command. A master has its share of the machine, as in the guides."""
        command = elasticdl(
            "train",
            f"--namespace={self.namespace}",
            f"--job_name={job}",
            "--image_pull_policy=Never",
            "--master_resource_request=cpu=0.2,memory=1024Mi",
            "--master_resource_limit=cpu=1,memory=2048Mi",
            *flags,
        )
        environment = {**os.environ, "NO_COLOR": "1"}
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def submit(self, job: str, program: str, *flags: str) -> None:
        """A job of the light image that runs one of the programs beside this module."""
        text = (Path(__file__).parent / "programs" / f"{program}.py").read_text()
        self.kubectl("create", "configmap", job, f"--from-literal=program.py={text}")
        finish(
            self.train(
                job,
                f"--image_name={image('light')}",
                "--job_command=python3 /programs/program.py",
                f"--volume=config_map={job},mount_path=/programs",
                *flags,
            )
        )

    def end(self, job: str) -> None:
        """Deletes the job, and waits until nothing of it uses the machine."""
        # The master first, or it would replace the others; with a short grace period instead of half a minute.
        for pods in (f"elasticdl-replica-type=master,elasticdl-job-name={job}", f"elasticdl-job-name={job}"):
            self.delete("pods", f"--selector={pods}")
        self.kubectl("delete", "configmap", f"elasticdl-{job}")

    def delete(self, *words: str) -> None:
        """Deletes pods, and waits until their containers have ended: their objects may exist for another minute."""
        for line in self.kubectl("delete", *words, "--now", "--wait=false", "--output=name").split():
            self.wait_for(line.removeprefix("pod/"), lambda seen: seen.ended, "has ended")

    def stamps(self, pod: str) -> stamps.Stamps:
        """So far; raises if it has failed."""
        log = self.kubectl("logs", pod)
        with self._more:
            last = next(seen for seen in reversed(self._seen) if seen.name == pod)
        if last.phase == "Failed":
            raise Stuck(f"{pod} has failed:\n{log}")
        return stamps.read_printed(log)

    def in_master(self, job: str, program: str) -> str:
        """Returns the output of a small program in the pod of a master. It can use the id (`pid`) of the master's
        process and its processor time so far (`worked`).
        """
        find = (
            "import os, pathlib, time\n"
            "pid = next(p.name for p in pathlib.Path('/proc').glob('[0-9]*')"
            " if b'-m\\0elasticdl.master' in (p / 'cmdline').read_bytes())\n"
            "stat = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()\n"
            "worked = (int(stat[11]) + int(stat[12])) / os.sysconf('SC_CLK_TCK')\n"
        )
        return self.kubectl("exec", f"elasticdl-{job}-master", "--", "python3", "-c", find + program)

    # -- pods ------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Returns the position of the next change."""
        with self._more:
            return len(self._seen)

    def seen(self) -> list[Seen]:
        """All changes so far."""
        with self._more:
            return list(self._seen)

    def wait(self, found: Callable[[Seen], bool], what: str, *, since: int = 0) -> Seen:
        """Returns the first change of that kind."""
        end = time.monotonic() + DEADLINE
        with self._more:
            at = since
            while True:
                for seen in self._seen[at:]:
                    if found(seen):
                        return seen
                at = len(self._seen)
                if not self._more.wait(end - time.monotonic()):
                    raise Stuck(f"{what}: not within {DEADLINE:.0f} s")

    def wait_for(self, pod: str, found: Callable[[Seen], bool], what: str, *, since: int = 0) -> Seen:
        return self.wait(lambda seen: seen.name == pod and found(seen), f"{pod} {what}", since=since)

    def wait_running(self, pod: str) -> Seen:
        return self.wait_for(pod, lambda seen: seen.phase == "Running", "is running")

    def _watch(self, watching: subprocess.Popen[str]) -> None:
        assert watching.stdout is not None
        for line in watching.stdout:
            now = time.monotonic()
            event = json.loads(line)
            with self._more:
                self._seen.append(Seen(seconds=now, kind=event["type"], pod=event["object"]))
                self._more.notify_all()


def _api() -> httpx.Client:
    access = find_access()
    return httpx.Client(
        base_url=access.server, verify=access.tls, headers=access.identity.headers(), trust_env=False
    )


def finish(command: subprocess.Popen[str]) -> None:
    """Waits for a command, which must succeed."""
    output, _ = command.communicate(timeout=DEADLINE)
    if command.returncode != 0:
        raise Stuck(f"{command.args!r} ended with {command.returncode}:\n{output}")


def load() -> str:
    """Returns the load of the machine, for the note of a result."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
