"""A run on an MLflow server, through MLflow's client.

The run has the job's key as a tag, and a master that was restarted, perhaps in a new pod, finds it by that: there is no
file to lose. Points that are sent twice have the same time and step, and MLflow keeps one of them.

Failure modes
    The server is away, slow or answers with an error: `TrackerError`. The client's own retries, which take minutes, are
    switched off: `recorder.py` has those. The run was deleted on the server: another one is created by the next master.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from elasticdl.master.tracking.tracker import Point, Run, RunEnd, TrackerError

if TYPE_CHECKING:
    from mlflow import MlflowClient

KEY_TAG = "elasticdl.run"
STATE_TAG = "elasticdl.state"
# Limits of older servers; newer ones accept more.
_LONGEST_PARAM = 500
_LONGEST_TAG = 5000
_UNNAMEABLE = re.compile(r"[^\w\-./ ]", re.ASCII)
_STATES = {"succeeded": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
# Rejections of what was sent. All others may be of a proxy, or of a server that is being configured.
_REJECTED = (400, 413, 422)
_CLIENT_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    # A job reports to the server it was given, and to no other.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # The log has it already.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class MlflowTracker:
    def __init__(self, uri: str, experiment: str) -> None:
        self.name = f"MLflow at {uri}"
        self._uri = uri
        self._experiment = experiment
        self._client: MlflowClient | None = None
        self._run_id = ""
        # Read when the package is imported.
        for variable, value in _CLIENT_SETTINGS.items():
            os.environ.setdefault(variable, value)

    def open(self, run: Run) -> str:
        with _errors():
            client = self._connected()
            experiment = self._experiment_id(client)
            found = client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{run.key}'", max_results=1)
            if found:
                self._run_id = found[0].info.run_id
                client.update_run(self._run_id, status="RUNNING")
            else:
                tags = {**_tags(run.tags), KEY_TAG: run.key, STATE_TAG: "running"}
                self._run_id = client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
            self._set_tags(client, {STATE_TAG: "running"})
            self._set_params(client, run.params)
        return f"{self._uri.rstrip('/')}/#/experiments/{experiment}/runs/{self._run_id}"

    def record(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(_UNNAMEABLE.sub("_", name), value, int(point.time * 1000), point.step)
            for point in points
            for name, value in point.values.items()
        ]
        with _errors():
            # In as many requests as the server's limits take.
            self._connected().log_batch(self._run_id, metrics=metrics)

    def close(self, end: RunEnd) -> None:
        with _errors():
            client = self._connected()
            self._set_tags(client, {**end.tags, STATE_TAG: end.state})
            client.set_terminated(self._run_id, status=_STATES[end.state])

    def _connected(self) -> MlflowClient:
        if self._client is None:
            from mlflow import MlflowClient

            self._client = MlflowClient(tracking_uri=self._uri)
        return self._client

    def _experiment_id(self, client: MlflowClient) -> str:
        from mlflow.exceptions import MlflowException

        found = client.get_experiment_by_name(self._experiment)
        if found is None:
            try:
                return str(client.create_experiment(self._experiment))
            except MlflowException:
                # Another job may have created it at the same moment.
                found = client.get_experiment_by_name(self._experiment)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise TrackerError(
                f"the experiment {self._experiment} has been deleted on the server: restore it, or give another one "
                "(--mlflow_experiment)"
            )
        return str(found.experiment_id)

    def _set_params(self, client: MlflowClient, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        entries = [Param(name, _shortened(value, _LONGEST_PARAM)) for name, value in params.items()]
        client.log_batch(self._run_id, params=entries)

    def _set_tags(self, client: MlflowClient, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        client.log_batch(self._run_id, tags=[RunTag(name, value) for name, value in _tags(tags).items()])


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: _shortened(value, _LONGEST_TAG) for name, value in tags.items()}


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turns the errors of the client into `TrackerError`."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        is_permanent = error.get_http_status_code() in _REJECTED
        raise TrackerError(str(error), is_permanent=is_permanent) from error
