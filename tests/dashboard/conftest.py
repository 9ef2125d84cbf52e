"""A status as a running job's master gives it, and the server of the dashboard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.dashboard.registry import DashboardRegistry
from elasticdl.dashboard.server.dashboard_server import DashboardServer
from elasticdl.dashboard.settings import DashboardSettings
from elasticdl.jobs.status import JobStatus
from tests.dashboard.client import Client


@pytest.fixture
def status() -> JobStatus:
    took: dict[str, Any] = {
        "count": 20,
        "seconds": 0.5,
        "per_second": 4.0,
        "p50": 0.001,
        "p95": 0.002,
        "p99": None,
    }
    document = {
        "job": "clicks",
        "kind": "train",
        "state": "running",
        "phase": "training",
        "started": 1700000000.5,
        "epoch": 1,
        "epochs": 3,
        "samples_done": 1500,
        "samples_total": 3000,
        "step": 46,
        "samples_per_second": 120.5,
        "loss": 0.25,
        "evaluations": [
            {"step": 10, "metrics": {"auc": 0.5}},
            {"step": 20, "metrics": {"auc": 0.75, "loss": float("nan")}},
        ],
        "generation": 1,
        "nodes": [
            {"name": "worker-0", "role": "worker", "phase": "running"},
            {"name": "worker-1", "role": "worker", "phase": "running"},
            {"name": "worker-2", "role": "worker", "phase": "failed"},
            {"name": "ps-0", "role": "ps", "phase": "running"},
        ],
        "targets": {"worker": 2, "ps": 1},
        "servers": [
            {
                "name": "ps-0",
                "number": 0,
                "version": 46,
                "rows": 1000,
                "bytes": 64000,
                "dense_bytes": 400,
                "parameters": 100,
                "pull": took,
                "push": took,
                "calls": {"pull_rows": took, "push": took},
                "rows_pulled_per_second": 4000.0,
                "rows_pushed_per_second": 3900.0,
                "hit_rate": 0.875,
                "staleness": {"mean": 1.5, "max": 4},
                "not_finite": 2,
                "rows_refused": 0,
                "tables": [
                    {
                        "table": 'a "quoted"\\name',
                        "rows": 1000,
                        "bytes": 63600,
                        "pulled": 10**15,
                        "found": 700,
                        "pushed": 750,
                        "pulled_per_second": 4000.0,
                        "pushed_per_second": 3900.0,
                        "hit_rate": None,
                        "rows_refused": 0,
                        "hot": [{"id": -7, "share": 0.5}],
                    }
                ],
            }
        ],
    }
    return JobStatus.from_json(document)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for jobs, of a user without a cluster."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("ELASTICDL_HOME", str(folder))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-cluster"))
    return folder


@pytest.fixture
def serve(home: Path) -> Iterator[Callable[..., Client]]:
    """Starts the real server on a free port of loopback."""
    running: list[tuple[DashboardServer, threading.Thread]] = []

    def start(**settings: Any) -> Client:
        server = DashboardServer(
            DashboardSettings(**{"port": 0, **settings}), registry=DashboardRegistry(home)
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        return Client(server.link)

    yield start
    for server, thread in running:
        server.close()
        thread.join()
