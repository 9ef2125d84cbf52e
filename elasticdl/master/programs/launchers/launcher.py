"""The interface of launchers: how a node that runs a job command is started for its framework.

A launcher knows which variables the distributed runtime of its framework reads. What all nodes get (who they are, where
the master is) is in `program_nodes`. A job gets the variables of its own framework only: those of another could switch
on a mode of a library that the program did not ask for.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.master.programs.shell_command import command_line

# Places for workers beyond those that the job begins with, where parameter servers must know all of them in advance.
SPARE_WORKERS = 16


@dataclass(frozen=True, kw_only=True)
class NodePlace:
    """A node's place in its job. Addresses belong to places, so the replacement of a node has the same."""

    role: str
    slot: int
    # The addresses of each role, by slot. A role may have more addresses than nodes; a platform may give none.
    addresses: Mapping[str, Sequence[str]]
    # How many nodes of each role are desired.
    targets: Mapping[str, int]


class Launcher(abc.ABC):
    def command(self, job_command: str) -> tuple[str, ...]:
        """Returns the words with which the node's first process is started."""
        return command_line(job_command)

    @abc.abstractmethod
    def environment(self, place: NodePlace) -> dict[str, str]:
        """Returns the variables that the framework reads."""


def places(targets: dict[str, int]) -> dict[str, int]:
    """Returns how many addresses each role needs."""
    spare = {"worker": SPARE_WORKERS if targets.get("ps") else 0}
    return {role: count + spare.get(role, 0) for role, count in targets.items()}
