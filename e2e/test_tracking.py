"""Jobs recorded on a real MLflow server and for W&B while processes are killed: one run, all metrics, one state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import wait_until
from tests.mlflow_server import MlflowServer, free_port, mlflow_server

SIZE = 1437
WANDB_FILES = "wandb/offline-run-*/run-*.wandb"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as running:
        yield running


def test_one_run_for_job_whose_worker_and_master_are_killed(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path, server: MlflowServer
) -> None:
    gates.hold("train")
    gates.hold("epoch-0")
    job = start_gated(
        f"--mlflow_uri={server.uri}",
        "--wandb_project=digits",
        f"--output={tmp_path / 'model'}",
        environment={"ELASTICDL_TEST_SLOW": "0.01"},
    )
    gates.wait_for("train", 2)
    job.kill("worker-0")
    gates.release("train")
    # Points of the first master are on the server before it is killed.
    gates.wait_for("epoch-0")
    (run,) = wait_until(lambda: [r for r in server.runs() if "loss" in r.data.metrics], "losses are recorded")
    assert run.info.status == "RUNNING"
    wait_until(lambda: list(job.folder.glob(WANDB_FILES)), "W&B's client has begun a file")
    job.kill("master")
    gates.release("epoch-0")
    job.assert_exact(epochs=2, size=SIZE)

    (run,) = server.runs()
    history = {name: server.history(run.info.run_id, name) for name in run.data.metrics}
    assert (run.info.run_name, run.info.status) == (job.name, "FINISHED")
    assert run.data.tags["elasticdl.state"] == "succeeded"
    assert str(tmp_path / "model") in run.data.tags["elasticdl.output"]
    assert run.data.params["num_epochs"] == "2"
    assert run.data.tags["elasticdl.strategy"] == "ParameterServerStrategy"
    # From both masters, to the last step.
    status = job.status()
    assert [step for step, _ in history["evaluation/accuracy"]] == [e["step"] for e in status["evaluations"]]
    assert history["loss"][-1][0] == status["step"]
    # Both workers, one of them, and both.
    assert {1.0, 2.0} <= {value for _, value in history["workers"]}
    assert {value for _, value in history["desired_workers"]} == {2.0}
    assert f"MLflow at {server.uri}: {server.uri}/#/experiments/" in job.output
    # Offline, a file for each master, which W&B takes for one run: they have one id.
    files = [file.name for file in job.folder.glob(WANDB_FILES)]
    assert files == [f"run-{run.data.tags['elasticdl.run']}.wandb"] * 2
    assert "W&B project digits: wandb sync " in job.output
    assert "(without the last metrics of 1 killed master)" in job.output


def test_job_whose_server_is_absent_succeeds_and_says_what_is_missing(
    start_gated: Callable[..., Any],
) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    job = start_gated(f"--mlflow_uri={uri}", "--num_epochs=1", "--num_workers=1")
    job.assert_exact(epochs=1, size=SIZE)
    assert f"MLflow at {uri}: " in job.output
    assert "metric batches were not recorded" in job.output
    log = (job.folder / "logs" / "master.log").read_text()
    assert log.count("fails and is retried") == 1
