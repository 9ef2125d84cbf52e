"""JobStatus: what is known of a job at one moment.

The master builds it; it travels as JSON over gRPC (`StatusReply.json`), in the job record on a cluster (`status.json`)
and in the folder of a local job. Commands, metrics and the controller read it. Of a job whose master has not started
yet only the first fields are known; the others have their defaults, and `has_report` is false.

Wire format
    A JSON object with `version`. Keys stay when attributes are renamed (`json_field`). Adding a field needs no new
    version: older readers ignore it. Removing one, or changing its meaning, does.

Failure modes
    A document that is no JSON, has a wrong type or a newer version: `StatusError`, which says where.
"""

# ruff: noqa: RUF009 - json_field makes a dataclass field

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.audit import Audit
from elasticdl.jobs.json_codec import BadDocument, check_version, decode, encode, json_field

STATUS_VERSION = 1


class StatusError(UserError):
    """The status of a job cannot be read."""


class RunState(str, enum.Enum):
    """The state of a job.

    starting → running → stopping → stopped, or running → succeeded or failed. `interrupted` is no state that a master
    reports: readers conclude it from a job that is not final and has no master.
    """

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"

    @property
    def is_final(self) -> bool:
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED)

    @property
    def is_active(self) -> bool:
        """The job has a master, or is about to have one."""
        return not self.is_final and self is not RunState.INTERRUPTED

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """A node of a job. `phase` and `reason` are the values of `NodePhase` and `EndReason` of the platforms."""

    name: str
    role: str
    phase: str
    reason: str = ""
    message: str = ""
    # It leases no more shards: scaled down, replaced, or terminated by the cluster.
    is_draining: bool = json_field("draining", default=False)
    has_joined: bool = json_field("joined", default=False)
    # Leased to it now.
    leased_shards: int = json_field("shards", default=0)
    # Since when it has not answered, in seconds since 1970.
    unresponsive_since_seconds: float | None = json_field("unresponsive_since_seconds", default=None)
    # The rate of the last seconds. None for nodes that train nothing by themselves.
    samples_per_second: float | None = None

    @property
    def is_ready(self) -> bool:
        return self.phase == "running" and self.has_joined and not self.is_draining


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of the model at one step."""

    step: int
    epoch: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BucketReport:
    """The distribution of the model's buckets over the parameter servers."""

    map_version: int = json_field("map", default=0)
    # Primaries by the name of the server.
    by_server: Mapping[str, int] = field(default_factory=dict)
    is_migrating: bool = json_field("moving", default=False)
    without_backup: int = json_field("with_one_copy", default=0)


@dataclass(frozen=True, kw_only=True)
class CallReport:
    """Calls of one kind that a parameter server has answered. Rates and quantiles are of the last seconds."""

    count: int = 0
    total_seconds: float = json_field("seconds", default=0.0)
    per_second: float | None = None
    p50_seconds: float | None = json_field("p50", default=None)
    p95_seconds: float | None = json_field("p95", default=None)
    p99_seconds: float | None = json_field("p99", default=None)


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Versions of the model between a pull and the push that follows it."""

    mean: float | None = None
    max: int | None = None


@dataclass(frozen=True, kw_only=True)
class HotId:
    """An id that is in a large share of the pulls of a table."""

    id: int
    share: float


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """A table on a parameter server. Counts of ids are since the server's start, rates of the last seconds."""

    name: str = json_field("table")
    rows: int = 0
    size_bytes: int = json_field("bytes", default=0)
    ids_pulled: int = json_field("pulled", default=0)
    ids_found: int = json_field("found", default=0)
    ids_pushed: int = json_field("pushed", default=0)
    ids_pulled_per_second: float | None = json_field("pulled_per_second", default=None)
    ids_pushed_per_second: float | None = json_field("pushed_per_second", default=None)
    hit_ratio: float | None = json_field("hit_rate", default=None)
    rows_rejected: int = json_field("rows_refused", default=0)
    hot_ids: tuple[HotId, ...] = json_field("hot", default=())


@dataclass(frozen=True, kw_only=True)
class ServerReport:
    """A parameter server, as it last reported. Rates and ratios are of the last seconds."""

    name: str
    number: int = 0
    # Updates of the model.
    version: int = 0
    rows: int = 0
    size_bytes: int = json_field("bytes", default=0)
    dense_bytes: int = 0
    parameters: int = 0
    # The rate of dense values and of rows together; the calls list each.
    pull: CallReport = field(default_factory=CallReport)
    push: CallReport = field(default_factory=CallReport)
    calls: Mapping[str, CallReport] = field(default_factory=dict)
    rows_pulled_per_second: float | None = None
    rows_pushed_per_second: float | None = None
    hit_ratio: float | None = json_field("hit_rate", default=None)
    staleness: Staleness = field(default_factory=Staleness)
    non_finite_pushes: int = json_field("not_finite", default=0)
    rows_rejected: int = json_field("rows_refused", default=0)
    tables: tuple[TableReport, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DesiredResult:
    """The master's result for the desired state of `JobStatus.observed_generation`.

    At most one of `message` and `error` has text; neither if there was nothing to do. Victims that could not be drained
    are listed with the reason; the rest was done.
    """

    message: str = ""
    error: str = ""
    ignored_victims: Mapping[str, str] = json_field("ignoredVictims", default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job at one moment. Times are seconds since 1970."""

    job: str = ""
    state: RunState = RunState.STARTING
    # train, evaluate or predict.
    kind: str = ""
    # "definition" or "command".
    program: str = ""
    # The present activity of the job, in words.
    phase: str = ""
    message: str = ""
    traceback: str = ""
    # The problem of the master, as seen from outside. Masters never write it.
    trouble: str = ""
    # When this was written.
    now: float = 0.0
    start_time: float = json_field("started", default=0.0)
    # The data set whose progress is the job's, and its samples.
    dataset: str = ""
    dataset_size: int = json_field("size", default=0)
    epoch: int = 0
    epochs: int = 0
    samples_done: int = 0
    # The samples of all epochs together.
    samples_desired: int = json_field("samples_total", default=0)
    # Samples of all epochs that were trained again: done once, then lost with the model or doubtful.
    samples_again: int = 0
    # Waiting of workers for slower ones, in seconds of the job: of one of four workers, a quarter counts.
    straggler_seconds: float = 0.0
    step: int = 0
    samples_per_second: float = 0.0
    remaining_seconds: float | None = json_field("seconds_left", default=None)
    loss: float | None = None
    # Step and loss, thinned out.
    losses: tuple[tuple[int, float], ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    evaluations_omitted: int = json_field("evaluations_left_out", default=0)
    # Notes of workers about the model.
    remarks: tuple[str, ...] = ()
    # Grows with every restore of the model from a checkpoint.
    model_generation: int = json_field("generation", default=0)
    checkpoint: str = ""
    output: str = ""
    # Where the runs on experiment trackers are, and what could not be recorded there.
    tracking: tuple[str, ...] = ()
    nodes: tuple[NodeReport, ...] = ()
    # How many nodes of each role the job should have.
    desired_nodes: Mapping[str, int] = json_field("targets", default_factory=dict)
    # The generation of the desired state (`jobs/desired.py`) that the master has acted on, and the result.
    observed_generation: int = json_field("observedGeneration", default=0)
    desired_result: DesiredResult = json_field("desiredResult", default_factory=DesiredResult)
    # The job was asked to pause, and has saved everything: its pods can be deleted.
    is_ready_to_pause: bool = json_field("readyToPause", default=False)
    # Batches whose gradients were not finite, and therefore had no effect.
    non_finite_batches: int = json_field("batches_without_effect", default=0)
    buckets: BucketReport | None = None
    servers: tuple[ServerReport, ...] = ()
    # None in a brief status.
    audit: Audit | None = None

    @property
    def has_report(self) -> bool:
        """A master has reported: progress and nodes are known."""
        return bool(self.desired_nodes)

    @property
    def latest_evaluation(self) -> Evaluation | None:
        return self.evaluations[-1] if self.evaluations else None

    def ready_nodes(self, role: str) -> int:
        return sum(node.is_ready for node in self.nodes if node.role == role)

    def without_tables(self) -> JobStatus:
        """Returns the status without the tables of the servers: for frequent readers."""
        return replace(self, servers=tuple(replace(server, tables=()) for server in self.servers))

    def to_json(self, *, merge_epochs: bool = False) -> dict[str, Any]:
        """Returns the document. `merge_epochs`: equal epochs of the audit share a row (`Audit.to_json`)."""
        document: dict[str, Any] = encode(replace(self, audit=None))
        del document["audit"]
        if self.buckets is None:
            document["buckets"] = {}
        audit = {} if self.audit is None else {"audit": self.audit.to_json(merge_epochs=merge_epochs)}
        return {"version": STATUS_VERSION, **document, **audit}

    @classmethod
    def from_json(cls, document: object) -> JobStatus:
        """Raises `StatusError`."""
        try:
            if not isinstance(document, Mapping):
                raise BadDocument("status: expected an object")
            check_version(document, newest=STATUS_VERSION, what="status")
            audit = Audit.from_json(document["audit"]) if document.get("audit") else None
            # No map yet is written as an empty object.
            plain = {**document, "audit": None, "buckets": document.get("buckets") or None}
            return replace(decode(cls, plain), audit=audit)
        except BadDocument as error:
            raise StatusError(f"The status of the job cannot be read: {error}.") from None

    def to_text(self, *, merge_epochs: bool = False) -> str:
        return json.dumps(self.to_json(merge_epochs=merge_epochs), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> JobStatus:
        """Raises `StatusError`."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise StatusError(f"The status of the job is not JSON: {error}.") from None
        return cls.from_json(document)
