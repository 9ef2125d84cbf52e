"""The platform of a job's nodes as the master uses it: starts and stops nodes, and reports their changes.

An implementation lists all nodes that it knows, ended ones included, so that a restarted master learns of changes
meanwhile. Everything else arrives as events. The master decides which node to start, and how to react when one ends.
"""

from __future__ import annotations

import abc
import enum
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

# How a node of ours ends when it can choose, reported by the exit code because that is the one thing every
# platform passes on. Below 64 so that they are not taken for the codes of sysexits.h or for 128 + a signal.
EXIT_COMPLETED = 0
EXIT_DRAINED = 0  # on request, it finished its batch and reported: nothing of it is left to do
EXIT_OUT_OF_MEMORY = 17  # an allocation failed (MemoryError): a smaller batch or a larger machine may help
EXIT_DEFINITION_ERROR = 18  # the model definition cannot work: a retry cannot help
# A clean exit after a signal that no drain request announced: reported as if the signal itself had ended the node.
EXIT_TERMINATED = 128 + signal.SIGTERM

MASTER_ROLE = "master"


class NodePhase(str, enum.Enum):
    PENDING = "pending"  # the message says what it waits for, if it is not just its turn
    RUNNING = "running"
    LEAVING = "leaving"  # terminating: still at work, but not for long
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class EndReason(str, enum.Enum):
    """Why a node is not running any more, as far as the platform can tell."""

    NONE = ""
    COMPLETED = "completed"
    ERROR = "error"  # the program exited with a code of its own
    KILLED = "killed"  # from outside: a signal, a preemption, a lost machine
    OUT_OF_MEMORY = "out of memory"
    STOPPED = "stopped"  # we asked for it
    CANNOT_START = "cannot start"


@dataclass(frozen=True, kw_only=True)
class NodeRequest:
    """A node to start."""

    name: str  # "worker-3", unique in the job forever
    role: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    # The place of its role that the node takes over from its predecessors, and the number of places.
    place: int = 0
    places: int = 1
    # How often those before it ran out of memory.
    memory_doublings: int = 0


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    name: str
    role: str
    phase: NodePhase
    reason: EndReason = EndReason.NONE
    exit_code: int | None = None
    message: str = ""
    # It ran out of memory, and there is more for the next one in its place.
    gets_more_memory: bool = False
    # The place of its role that the node has, if the platform remembers it for a restarted master.
    place: int | None = None


class Platform(abc.ABC):
    """The nodes of one job."""

    @abc.abstractmethod
    async def start(self, request: NodeRequest) -> None:
        """Returns once the platform has taken the request. The same name again changes nothing."""

    @abc.abstractmethod
    async def stop(self, name: str, *, grace_seconds: float) -> None:
        """Asks the node to end (SIGTERM); ends it (SIGKILL) after the grace. Unknown names are ignored."""

    @abc.abstractmethod
    async def nodes(self) -> list[NodeStatus]:
        """All nodes of the job ever started here, ended ones included. A platform may forget those that ended long ago
        and were reported as events.
        """

    @abc.abstractmethod
    def events(self) -> AsyncIterator[NodeStatus]:
        """Changes from now on; first of all the present status of every node."""

    async def addresses(self, places: dict[str, int]) -> dict[str, list[str]]:
        """HOST:PORT for every place of every role, where the nodes of a program find each other.

        They stay when a node is replaced; nothing listens there until the node does. Empty if nothing needs them.
        """
        return {}

    @abc.abstractmethod
    async def close(self) -> None:
        """Disconnects from the platform without touching the nodes."""
