"""The places besides its own folder where runs of a job are recorded: section `tracking` of a job.

The job's document is shown to many, so credentials of a tracking server have no place in its address: client libraries
read them from the environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from elasticdl.jobs.flags.flag import Topic, flag
from elasticdl.jobs.flags.grammar import Rule, Text
from elasticdl.jobs.flags.pairs import BadValue

_PROJECT = Rule(pattern=r"[^/\\#?%:\r\n]+", words="the name of a W&B project", longest=128)
_EXPERIMENT = Rule(pattern=r"[^\r\n]+", words="the name of an experiment in one line", longest=256)


@dataclass(frozen=True, kw_only=True)
class ServerAddress(Text):
    """The URL of an HTTP server, without user and password."""

    metavar: str = "URL"

    def parse(self, raw: object) -> str:
        text = super().parse(raw)
        if not text:
            return text
        try:
            parts = urlsplit(text)
            has_host = bool(parts.hostname) and parts.port != 0
        except ValueError as problem:
            raise BadValue(f"it is not a URL: {problem}") from None
        # The text is not repeated: it may be the one with the password.
        if "@" in parts.netloc:
            raise BadValue(
                "the URL has a user or a password in it; give them in the environment: MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            )
        if parts.scheme not in ("http", "https") or not has_host or any(c.isspace() for c in text):
            raise BadValue(f"{text!r} is not the URL of a server, such as http://127.0.0.1:5000")
        return text


@dataclass(frozen=True, kw_only=True)
class TrackingSection:
    """MLflow, Weights & Biases and OpenTelemetry: one run and one trace for each job, written by the master."""

    mlflow_uri: str = flag(
        ServerAddress(),
        "",
        "Record the job as a run on this MLflow server; user and password are read from the environment.",
        topic=Topic.TRACKING,
    )
    mlflow_experiment: str = flag(
        Text(metavar="NAME", rule=_EXPERIMENT, optional=False),
        "elasticdl",
        "Experiment of the run; it is created if the server does not have it.",
        topic=Topic.TRACKING,
    )
    otlp_endpoint: str = flag(
        ServerAddress(),
        "",
        "Send traces of the job (epochs, shards, resizes) to this OpenTelemetry collector; headers are read from "
        "OTEL_EXPORTER_OTLP_HEADERS.",
        topic=Topic.TRACKING,
    )
    wandb_project: str = flag(
        Text(metavar="NAME", rule=_PROJECT),
        "",
        "Record the job as an offline run of this W&B project, in the folder of the job, for `wandb sync`.",
        topic=Topic.TRACKING,
    )
