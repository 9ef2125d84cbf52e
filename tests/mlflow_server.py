"""A real MLflow server on this machine, for tests of experiment tracking."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_START_SECONDS = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, kw_only=True)
class MlflowServer:
    uri: str

    def client(self) -> Any:
        # Imported here: most tests do not need it.
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.uri)

    def runs(self, experiment: str = "elasticdl") -> list[Any]:
        client = self.client()
        found = client.get_experiment_by_name(experiment)
        return list(client.search_runs([found.experiment_id])) if found else []

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """Step and value of each point of a metric, in the order of steps."""
        points = self.client().get_metric_history(run_id, metric)
        return sorted((point.step, point.value) for point in points)


@contextlib.contextmanager
def mlflow_server(folder: Path) -> Iterator[MlflowServer]:
    """Runs it until the end of the block, with its database in the folder."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.log").open("wb") as output:
        process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "mlflow",
                    "server",
                    "--host=127.0.0.1",
                    f"--port={port}",
                    "--workers=1",
                ),
                f"--backend-store-uri=sqlite:///{folder}/mlflow.db",
                f"--artifacts-destination={folder}/artifacts",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "MLFLOW_DISABLE_TELEMETRY": "true",
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            },
        )
    try:
        uri = f"http://127.0.0.1:{port}"
        _wait_for(f"{uri}/health", process, folder / "server.log")
        yield MlflowServer(uri=uri)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    raise AssertionError(f"the MLflow server does not start:\n{log.read_text()}")
