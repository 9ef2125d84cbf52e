"""The request to the platform for a node: its command and its environment."""

from __future__ import annotations

import os

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.programs.node_environment import Surroundings
from elasticdl.master.programs.program_nodes import ProgramNodes
from elasticdl.platforms.platform import NodeRequest


class NodeRequests:
    def __init__(
        self, spec: JobSpec, *, environment: dict[str, str], surroundings: Surroundings | None = None
    ) -> None:
        self._spec = spec
        # Not copied: the addresses of the master are added when it listens, before the first node starts.
        self._environment = environment
        self._surroundings = surroundings or Surroundings()
        self._programs = ProgramNodes(spec, environment=self._environment, surroundings=self._surroundings)

    def build(self, node: Node, *, addresses: dict[str, list[str]], targets: dict[str, int]) -> NodeRequest:
        """`addresses`: of the places of a program, by role; `targets`: the desired number of nodes, by role."""
        if self._spec.program == "command":
            return self._programs.request(node, addresses=addresses, targets=targets)
        name, role, slot, number = node.name, node.role, node.slot, node.number
        environment = {
            **self._environment,
            **self._spec.nodes.envs,
            "ELASTICDL_NODE": name,
            "WORKER_ID": str(slot if role == "ps" else number),
            "WORKER_TYPE": role,
            "WORKER_NUM": str(targets["worker"]),
            # Output must be in the log even if the node is killed at once.
            "PYTHONUNBUFFERED": "1",
        }
        cores = self._surroundings.shared_cores
        if (
            role == "worker"
            and cores is not None
            and "ELASTICDL_THREADS" not in {**os.environ, **environment}
        ):
            # Frameworks take a thread a core each; several workers of a machine would fight over the cores.
            environment["ELASTICDL_THREADS"] = str(max(1, cores // targets["worker"]))
        return NodeRequest(
            name=name,
            role=role,
            command=(self._surroundings.python, "-m", f"elasticdl.{role}"),
            environment=environment,
            place=slot,
            places=targets[role],
            memory_doublings=node.memory_doublings,
        )
