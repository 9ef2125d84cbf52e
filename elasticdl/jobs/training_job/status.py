"""TrainingJobStatus: what the controller writes into `.status` of a TrainingJob.

Everything that `kubectl get`, `kubectl describe` and the dashboard show is here, and it stays after the pods are gone.
Conditions carry a typed reason and the time of their last transition; the phase is derived from them by the controller
and is for people. Times are seconds since 1970 in Python and RFC 3339 in the document.

Wire format
    `version` and camelCase keys. Adding a field needs no new version: older readers ignore it. `summary` holds the
    texts of the columns of `kubectl get`, which can show fields only; it is written and never read.

Failure modes
    A document of a wrong type or a newer version: `StatusError`, which says where. An empty document is an empty
    status.
"""

# ruff: noqa: RUF009 - json_field makes a dataclass field

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elasticdl.jobs.audit import Audit
from elasticdl.jobs.json_codec import BadDocument, check_version, decode, encode, json_field
from elasticdl.jobs.status import StatusError

TRAINING_JOB_STATUS_VERSION = 1
_DECISIONS_KEPT = 20


class TrainingJobPhase(str, enum.Enum):
    """The phase of a TrainingJob.

    Pending (waits for capacity) → Starting → Running → Succeeded or Failed. Suspended and Pending alternate with
    Running when a user suspends it or a job of higher priority preempts it. Invalid: the spec cannot be run, until it
    is edited. Stopped: a user has stopped it (`elasticdl jobs stop`).
    """

    PENDING = "Pending"
    INVALID = "Invalid"
    SUSPENDED = "Suspended"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def is_final(self) -> bool:
        return self in (TrainingJobPhase.SUCCEEDED, TrainingJobPhase.FAILED, TrainingJobPhase.STOPPED)

    def __str__(self) -> str:
        return self.value


class ConditionType(str, enum.Enum):
    """The subject of a condition."""

    # The spec can be run.
    VALID = "Valid"
    # The planner has given it its minimum.
    ADMITTED = "Admitted"
    # The master and the minimum of every role are running.
    READY = "Ready"
    # A pod cannot start: missing image, crash loop, no machine for it.
    STALLED = "Stalled"
    # A size was asked for that has not been reached yet.
    RESIZING = "Resizing"
    SUSPENDED = "Suspended"
    # It has ended; the reason says how.
    FINISHED = "Finished"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """`status` is True, False or Unknown, as everywhere in Kubernetes. `reason` is one word in CamelCase."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    # RFC 3339.
    last_transition_time: str = json_field("lastTransitionTime", default="")
    observed_generation: int = json_field("observedGeneration", default=0)

    @property
    def is_true(self) -> bool:
        return self.status == "True"


@dataclass(frozen=True, kw_only=True)
class RoleStatus:
    """Counts of one role. `desired` is what the controller has asked for."""

    ready: int = 0
    desired: int = 0
    min: int = 0
    max: int = 0

    def __str__(self) -> str:
        sizes = f"{self.min}–{self.max}" if self.max > self.min else str(self.max)
        return f"{self.ready}/{self.desired} ({sizes})" if self.max else ""


@dataclass(frozen=True, kw_only=True)
class ProgressStatus:
    """The progress of the job, from its master's last report."""

    epoch: int = 0
    epochs: int = 0
    samples_done: int = json_field("samplesDone", default=0)
    samples_total: int = json_field("samplesTotal", default=0)
    samples_per_second: float = json_field("samplesPerSecond", default=0.0)
    # None: unknown.
    remaining_seconds: float | None = json_field("remainingSeconds", default=None)

    @property
    def fraction(self) -> float | None:
        """Returns the progress from 0 to 1. None: unknown."""
        return min(self.samples_done / self.samples_total, 1.0) if self.samples_total else None


@dataclass(frozen=True, kw_only=True)
class LostSeconds:
    """The time that did not train, by cause, in seconds of the job's life."""

    waiting_for_capacity: float = json_field("waitingForCapacity", default=0.0)
    starting: float = 0.0
    retraining: float = 0.0
    stragglers: float = 0.0
    resizing: float = 0.0

    @property
    def total(self) -> float:
        return self.waiting_for_capacity + self.starting + self.retraining + self.stragglers + self.resizing


@dataclass(frozen=True, kw_only=True)
class GoodputStatus:
    """`ratio`: the part of the job's life that trained samples that count, without the time for which its user has
    suspended it. None before it has run.
    """

    ratio: float | None = None
    training_seconds: float = json_field("trainingSeconds", default=0.0)
    suspended_seconds: float = json_field("suspendedSeconds", default=0.0)
    lost_seconds: LostSeconds = json_field("lostSeconds", default_factory=LostSeconds)


@dataclass(frozen=True, kw_only=True)
class DecisionRecord:
    """A decision of the planner about this job. `time` is RFC 3339."""

    time: str
    # Admit, Grow, Shrink, Move, Preempt, Hold or Reject.
    kind: str
    sentence: str = ""
    # Trainers before and after.
    before: int = json_field("from", default=0)
    after: int = json_field("to", default=0)


@dataclass(frozen=True, kw_only=True)
class TrainingJobStatus:
    """The whole `.status`."""

    phase: TrainingJobPhase = TrainingJobPhase.PENDING
    # Why it is in this phase, in words.
    message: str = ""
    # The generation of the spec that this is about.
    observed_generation: int = json_field("observedGeneration", default=0)
    conditions: tuple[Condition, ...] = ()
    trainer: RoleStatus = field(default_factory=RoleStatus)
    pserver: RoleStatus = field(default_factory=RoleStatus)
    # For HorizontalPodAutoscalers, which find the trainers by it.
    selector: str = ""
    progress: ProgressStatus = field(default_factory=ProgressStatus)
    goodput: GoodputStatus = field(default_factory=GoodputStatus)
    # The newest last, at most 20.
    decisions: tuple[DecisionRecord, ...] = ()
    # RFC 3339; empty before.
    start_time: str = json_field("startTime", default="")
    completion_time: str = json_field("completionTime", default="")
    restarts: int = 0
    # The audit of a job that has ended.
    audit: Audit | None = None

    def condition(self, kind: ConditionType | str) -> Condition | None:
        return next((item for item in self.conditions if item.type == str_of(kind)), None)

    def with_condition(
        self,
        kind: ConditionType,
        status: bool | None,
        *,
        reason: str,
        message: str = "",
        now_seconds: float,
        observed_generation: int = 0,
    ) -> TrainingJobStatus:
        """Returns the status with this condition. The transition time changes only if `status` does. None: unknown."""
        text = "Unknown" if status is None else str(status)
        before = self.condition(kind)
        same = before is not None and before.status == text
        new = Condition(
            type=kind.value,
            status=text,
            reason=reason,
            message=message,
            last_transition_time=before.last_transition_time if before and same else format_time(now_seconds),
            observed_generation=observed_generation or (before.observed_generation if before else 0),
        )
        if before is None:
            return replace(self, conditions=(*self.conditions, new))
        return replace(
            self, conditions=tuple(new if item.type == kind.value else item for item in self.conditions)
        )

    def with_decision(self, decision: DecisionRecord) -> TrainingJobStatus:
        return replace(self, decisions=(*self.decisions, decision)[-_DECISIONS_KEPT:])

    def to_document(self) -> dict[str, Any]:
        """Returns the `.status` document. Unknown values are left out: the API server's schema has no null. So are
        empty texts, which API servers that were compiled with a later Go than theirs take for null.
        """
        document: dict[str, Any] = encode(replace(self, audit=None))
        document["version"] = TRAINING_JOB_STATUS_VERSION
        document["summary"] = self.summary()
        pruned = _without(document, None, "")
        assert isinstance(pruned, dict)
        if self.audit is not None:
            # Its fields have no schema.
            pruned["audit"] = _without(self.audit.compacted().to_json(merge_epochs=True), None)
        return pruned

    def summary(self) -> dict[str, str]:
        """Returns the columns of `kubectl get`."""
        fraction, left = self.progress.fraction, self.progress.remaining_seconds
        return {
            "trainers": str(self.trainer),
            "parameterServers": str(self.pserver),
            "progress": "" if fraction is None else f"{int(100 * fraction)} %",
            "timeLeft": "" if left is None or self.phase.is_final else format_duration(left),
        }

    @classmethod
    def from_document(cls, document: object) -> TrainingJobStatus:
        """Raises `StatusError`."""
        try:
            if not document:
                return cls()
            if not isinstance(document, Mapping):
                raise BadDocument("status: expected an object")
            check_version(document, newest=TRAINING_JOB_STATUS_VERSION, what="status")
            audit = Audit.from_json(document["audit"]) if document.get("audit") else None
            return replace(decode(cls, {**document, "audit": None}, path="status"), audit=audit)
        except BadDocument as error:
            raise StatusError(f"The status of the TrainingJob cannot be read: {error}.") from None


def str_of(kind: ConditionType | str) -> str:
    return kind.value if isinstance(kind, ConditionType) else kind


def format_time(seconds: float) -> str:
    """Returns seconds since 1970 as RFC 3339, as the API server writes times."""
    moment = datetime.datetime.fromtimestamp(int(seconds), tz=datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float | None:
    """Returns a time of `format_time` in seconds since 1970. None for an empty text."""
    if not text:
        return None
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def format_duration(seconds: float) -> str:
    """Returns a duration as kubectl writes ages: the two largest units."""
    whole = max(int(seconds), 0)
    parts: list[tuple[str, int]] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        if count or parts:
            parts.append((unit, count))
    text = "".join(f"{count}{unit}" for unit, count in parts[:2] if count)
    return text or "0s"


def _without(value: object, *nothing: object) -> object:
    if isinstance(value, dict):
        return {key: _without(item, *nothing) for key, item in value.items() if item not in nothing}
    if isinstance(value, list):
        return [_without(item, *nothing) for item in value]
    return value
