"""Commands on nodes: what they and the platform say of them, and how many are desired."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.master.commands.command import Command
from elasticdl.platforms.platform import NodeStatus


@dataclass(frozen=True, kw_only=True)
class PushCredit:
    """The last batch of a dead worker that all parameter servers have applied, with all batches before it."""

    lease_id: int
    position: int
    batches: int


@dataclass(frozen=True, kw_only=True)
class PartialPush:
    """The batch after that, if the worker ended in the middle of its push: the buckets that have it, as bits in hex."""

    lease_id: int
    position: int
    batches: int
    buckets: str


@dataclass(frozen=True, kw_only=True)
class AssignAddresses(Command[None]):
    """The addresses of a program's nodes, by role; a replacement takes over the address of its place."""

    addresses: dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class JoinNode(Command[bool]):
    """Returns False if this is no node of the job (any more)."""

    node: str
    incarnation: str
    address: str


@dataclass(frozen=True, kw_only=True)
class ObserveNode(Command[None]):
    """The platform's status of a node. If a worker has ended, `credit` is what it did beyond its last report, and
    `in_doubt` says that the parameter servers could not tell; `partial` is a batch that some of them have had.
    """

    status: NodeStatus
    credit: PushCredit | None = None
    partial: PartialPush | None = None
    in_doubt: bool = False


@dataclass(frozen=True, kw_only=True)
class VacateNode(Command[None]):
    """A worker has ended, and is replaced at once. Its leases stay until the parameter servers have said what it is
    credited with (`ObserveNode`).
    """

    status: NodeStatus


@dataclass(frozen=True, kw_only=True)
class ReportFailure(Command[None]):
    """A node's own error; it exits after it."""

    node: str
    kind: str
    message: str
    traceback: str
    lease_id: int


@dataclass(frozen=True, kw_only=True)
class ReportHungNode(Command[None]):
    """A node has exceeded --start_timeout_seconds: a program that asked for no data, or a node that did not join."""

    node: str


@dataclass(frozen=True, kw_only=True)
class ScaleRole(Command[None]):
    """Sets the desired number of nodes. `victims` are drained first."""

    role: str
    target: int
    victims: list[str] = field(default_factory=list)
