"""Runs on a real MLflow server: one for each job, whatever happens to its master and to the server."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.tracking.mlflow_tracker import MlflowTracker
from elasticdl.master.tracking.recorder import Recorder
from elasticdl.master.tracking.tracker import Point, Run, RunEnd, TrackerError
from elasticdl.master.tracking.tracking import Tracking, check_libraries
from tests.mlflow_server import MlflowServer, free_port, mlflow_server

RUN = Run(name="job", key="k", params={"num_workers": "2"}, tags={"elasticdl.job": "job"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as running:
        yield running


def points(*steps: int, **values: float) -> list[Point]:
    return [Point(step=step, time=100.0 + step, values=values or {"loss": 1 / (step + 1)}) for step in steps]


def test_run_has_params_metrics_by_step_tags_and_state(server: MlflowServer) -> None:
    tracker = MlflowTracker(server.uri, "whole run")
    place = tracker.open(RUN)
    tracker.record(points(0, 5, 10))
    tracker.record(points(10, **{"evaluation/accuracy": 0.5, "what (a name): is it?": 1.0}))
    tracker.close(
        RunEnd(state="succeeded", tags={"elasticdl.output": "/model", "elasticdl.message": "x" * 9000})
    )
    (run,) = server.runs("whole run")
    assert place.endswith(f"/runs/{run.info.run_id}")
    assert (run.info.run_name, run.info.status) == ("job", "FINISHED")
    assert run.data.params == {"num_workers": "2"}
    assert server.history(run.info.run_id, "loss") == [
        (0, 1.0),
        (5, pytest.approx(1 / 6)),
        (10, pytest.approx(1 / 11)),
    ]
    assert server.history(run.info.run_id, "evaluation/accuracy") == [(10, 0.5)]
    assert "what _a name__ is it_" in run.data.metrics
    assert run.data.tags["elasticdl.state"] == "succeeded"
    assert run.data.tags["elasticdl.output"] == "/model"


def test_restarted_master_continues_the_run(server: MlflowServer) -> None:
    first = MlflowTracker(server.uri, "restarted")
    first.open(RUN)
    first.record(points(0, 1))
    # It had sent this, and was killed before the answer.
    second = MlflowTracker(server.uri, "restarted")
    second.open(RUN)
    second.record(points(1, 2))
    (run,) = server.runs("restarted")
    assert run.info.status == "RUNNING"
    assert [step for step, _ in server.history(run.info.run_id, "loss")] == [0, 1, 2]


def test_resumed_job_runs_again_and_other_jobs_have_other_runs(server: MlflowServer) -> None:
    tracker = MlflowTracker(server.uri, "resumed")
    tracker.open(RUN)
    tracker.close(RunEnd(state="stopped", tags={}))
    assert [run.info.status for run in server.runs("resumed")] == ["KILLED"]
    again = MlflowTracker(server.uri, "resumed")
    again.open(RUN)
    assert [run.info.status for run in server.runs("resumed")] == ["RUNNING"]
    again.close(RunEnd(state="failed", tags={}))
    assert [run.info.status for run in server.runs("resumed")] == ["FAILED"]
    MlflowTracker(server.uri, "resumed").open(Run(name="job", key="other", params={}, tags={}))
    assert len(server.runs("resumed")) == 2


def test_metrics_of_many_names_fit_into_requests(server: MlflowServer) -> None:
    tracker = MlflowTracker(server.uri, "many")
    tracker.open(RUN)
    tracker.record([Point(step=s, time=s, values={f"m{n}": n for n in range(100)}) for s in range(12)])
    (run,) = server.runs("many")
    assert len(run.data.metrics) == 100
    assert len(server.history(run.info.run_id, "m99")) == 12


def test_run_deleted_meanwhile_rejects_points_for_good(server: MlflowServer) -> None:
    tracker = MlflowTracker(server.uri, "deleted run")
    tracker.open(RUN)
    (run,) = server.runs("deleted run")
    server.client().delete_run(run.info.run_id)
    with pytest.raises(TrackerError) as error:
        tracker.record(points(1))
    assert error.value.is_permanent


def test_deleted_experiment_is_named(server: MlflowServer) -> None:
    client = server.client()
    client.delete_experiment(client.create_experiment("deleted"))
    with pytest.raises(TrackerError, match="experiment deleted has been deleted on the server"):
        MlflowTracker(server.uri, "deleted").open(RUN)


def test_absent_server_is_an_error_that_a_repetition_may_cure() -> None:
    with pytest.raises(TrackerError, match="refused") as error:
        MlflowTracker(f"http://127.0.0.1:{free_port()}", "absent").open(RUN)
    assert not error.value.is_permanent


def forward(listener: socket.socket, target: tuple[str, int]) -> None:
    """Forwards connections until the listener is closed."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                incoming, _ = listener.accept()
                outgoing = socket.create_connection(target)
                for pair in ((incoming, outgoing), (outgoing, incoming)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def test_server_that_starts_late_gets_everything(server: MlflowServer) -> None:
    # A port refuses connections until it is listened at. Starting another MLflow takes many seconds.
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{late.getsockname()[1]}"
        recorder = Recorder(MlflowTracker(uri, "late"), RUN)
        recorder.scalars(1, {"loss": 1.0})
        assert recorder.advance() > 0
        late.listen()
        known = urlsplit(server.uri)
        forward(late, (str(known.hostname), int(known.port or 0)))
        recorder.scalars(2, {"loss": 0.5})
        recorder.end(RunEnd(state="succeeded", tags={}))
        recorder.start()
        recorder.wait(120)
        late.shutdown(socket.SHUT_RDWR)
    (run,) = server.runs("late")
    assert server.history(run.info.run_id, "loss") == [(1, 1.0), (2, 0.5)]
    assert run.info.status == "FINISHED"
    assert len(recorder.report()) == 1


def test_job_with_absent_server_ends_and_says_what_is_missing(tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    spec = JobSpec.build(job_command="true", mlflow_uri=uri)
    tracking = Tracking.of(spec, key="k", folder=tmp_path)
    tracking.start()
    tracking.scalars(1, {"loss": 1.0})
    asyncio.run(tracking.finish(RunEnd(state="failed", tags={}), timeout_seconds=0))
    assert tracking.report()[0].startswith(f"MLflow at {uri}: 1 metric batch was not recorded: API request")


def test_missing_package_is_a_user_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_libraries(JobSpec.build(job_command="true"))
    with pytest.raises(UserError, match="--mlflow_uri needs the package mlflow") as error:
        check_libraries(JobSpec.build(job_command="true", mlflow_uri="http://127.0.0.1:1"))
    assert error.value.hint == "pip install 'mlflow-skinny>=2.14'"
