"""The entries of a job's history, and the file that holds them: a line of JSON each, the oldest first.

A status says how a job is now. Entries say how it came there: each change of a node, each event, and samples of the
figures, which become rarer the longer a job runs. Times are seconds since 1970.

Failure modes
    A line that was cut off by a kill, or that a newer version wrote: it is passed over, the others count.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from elasticdl.jobs.history.time_account import TimeAccount
from elasticdl.jobs.json_codec import BadDocument, decode, encode, json_field
from elasticdl.jobs.status import NodeReport


class NodeState(str, enum.Enum):
    """The state of a node: pending → starting → working → draining → ended; each may be left for `ended` at once."""

    PENDING = "pending"
    STARTING = "starting"
    WORKING = "working"
    UNRESPONSIVE = "unresponsive"
    DRAINING = "draining"
    ENDED = "ended"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, node: NodeReport) -> NodeState:
        if node.phase == "pending":
            return cls.PENDING
        if node.phase in ("succeeded", "failed"):
            return cls.ENDED
        if node.is_draining or node.phase == "leaving":
            # A node that is replaced already is known by its reason.
            return cls.ENDED if node.reason else cls.DRAINING
        if node.unresponsive_since_seconds:
            return cls.UNRESPONSIVE
        return cls.WORKING if node.has_joined else cls.STARTING


@dataclass(frozen=True, kw_only=True)
class NodeChange:
    """A node has another state than before. `reason` and `message` say why it ended."""

    time: float
    node: str
    role: str
    state: NodeState
    reason: str = ""
    message: str = ""


class EventKind(str, enum.Enum):
    STATE = "state"
    SIZE = "size"
    EPOCH = "epoch"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    ROLLBACK = "rollback"
    WARNING = "warning"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Something that happened to the job, in a sentence."""

    time: float
    event: EventKind
    text: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The figures of a job at one moment. `scalars`: what workers recorded last, such as the learning rate."""

    time: float
    step: int
    epoch: int = 0
    samples_done: int = json_field("done", default=0)
    samples_per_second: float = json_field("rate", default=0.0)
    loss: float | None = None
    ready_workers: int = json_field("workers", default=0)
    desired_workers: int = json_field("desired", default=0)
    ready_servers: int = json_field("servers", default=0)
    scalars: Mapping[str, float] = field(default_factory=dict)
    account: TimeAccount = field(default_factory=TimeAccount)


Entry: TypeAlias = NodeChange | JobEvent | Sample

# By the key that only this kind of entry has.
_KINDS: Mapping[str, type[NodeChange] | type[JobEvent] | type[Sample]] = {
    "node": NodeChange,
    "event": JobEvent,
    "step": Sample,
}


def to_line(entry: Entry) -> str:
    """Returns the line of an entry, with its line break."""
    return json.dumps(encode(entry), separators=(",", ":")) + "\n"


def parse_lines(lines: Iterable[str]) -> Iterator[Entry]:
    """Yields the entries of a file. Lines that cannot be read are passed over."""
    for line in lines:
        try:
            document = json.loads(line)
            kind = next(kind for key, kind in _KINDS.items() if key in document)
            yield decode(kind, document)
        except (ValueError, TypeError, StopIteration, BadDocument):
            continue
