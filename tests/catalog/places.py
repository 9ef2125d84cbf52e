"""Places in which the contract of a catalog is tested: this machine, with real jobs, and a fake cluster.

On the fake cluster a program of a few lines plays the master: it reports a status, logs a line and acts on the desired
state, as the job's command says. On this machine the command runs as it is.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elasticdl.catalog.catalog import Catalog
from elasticdl.catalog.kubernetes.catalog import KubernetesCatalog
from elasticdl.catalog.local.catalog import LocalCatalog
from elasticdl.catalog.observer import JobObserver
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from tests.catalog.api_server import MASTER, NAMESPACE, RECORD, RUNNING, ApiServer

SUCCEEDS = "echo hello"
# Until it is stopped.
WAITS = "echo hello; exec sleep 600"


class Place(abc.ABC):
    """`spec`: of a job called job."""

    @abc.abstractmethod
    def catalog(self, observer: JobObserver) -> Catalog: ...

    @abc.abstractmethod
    def spec(self, command: str, name: str = "job") -> JobSpec: ...


class Machine(Place):
    def __init__(self, home: Path) -> None:
        self._store = JobStore(home)

    def catalog(self, observer: JobObserver) -> Catalog:
        return LocalCatalog(store=self._store, observer=observer)

    def spec(self, command: str, name: str = "job") -> JobSpec:
        return JobSpec.build(job_name=name, job_command=command, num_workers=1)


class FakeCluster(Place):
    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._command = ""
        api.meanwhile = self._meanwhile

    def catalog(self, observer: JobObserver) -> Catalog:
        return KubernetesCatalog.connect(namespace=NAMESPACE, observer=observer)

    def spec(self, command: str, name: str = "job") -> JobSpec:
        self._command = command
        return JobSpec.build(job_name=name, job_command=command, image_name="i", num_workers=1)

    def _meanwhile(self, method: str, kind: str, name: str) -> None:
        if (method, kind, name) == ("POST", "pods", MASTER):
            self._api.master(**RUNNING)
            self._api.logs[MASTER] = self._log
            self._report("running")
            if self._command == SUCCEEDS:
                self._end("succeeded")
        elif (method, name) == ("PATCH", RECORD) and self._api.desired.generation != self._observed:
            self._act()

    @property
    def _observed(self) -> int:
        return int(self._api.status.get("observedGeneration", 0))

    def _act(self) -> None:
        desired = self._api.desired
        if desired.stop:
            self._end("stopped", observedGeneration=desired.generation)
            return
        count = desired.nodes["worker"]
        result = {"message": f"from 1 to {count} workers"} if count > 0 else {"error": "at least 1"}
        self._report("running", observedGeneration=desired.generation, desiredResult=result)

    def _end(self, state: str, **more: Any) -> None:
        self._api.change("pods", MASTER, {"status": {"phase": "Succeeded"}})
        self._report(state, **more)

    def _report(self, state: str, **more: Any) -> None:
        self._api.said(state=state, kind="train", targets={"worker": 1}, **more)

    def _log(self, query: dict[str, str]) -> Iterator[str]:
        yield "2026-11-16T05:35:01Z hello\n"
