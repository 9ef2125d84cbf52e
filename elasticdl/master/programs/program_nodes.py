"""Nodes that run a job command: their command and their environment.

Every node learns who it is (WORKER_ID, WORKER_TYPE, WORKER_NUM) and where the master is. Its launcher adds the
variables of its framework.
"""

from __future__ import annotations

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.programs.launchers.launcher import NodePlace
from elasticdl.master.programs.launchers.selection import launcher_of
from elasticdl.master.programs.node_environment import Surroundings
from elasticdl.master.programs.node_environment import search_path as search_path
from elasticdl.platforms.platform import NodeRequest


class ProgramNodes:
    def __init__(
        self,
        spec: JobSpec,
        *,
        environment: dict[str, str],
        surroundings: Surroundings,
    ) -> None:
        self._spec = spec
        self._launcher = launcher_of(spec)
        self._environment = environment
        self._surroundings = surroundings

    def request(self, node: Node, *, addresses: dict[str, list[str]], targets: dict[str, int]) -> NodeRequest:
        place = NodePlace(role=node.role, slot=node.slot, addresses=addresses, targets=targets)
        environment = {
            **self._surroundings.search_path,
            **self._environment,
            **self._spec.nodes.envs,
            "ELASTICDL_NODE": node.name,
            "WORKER_ID": str(node.number),
            "WORKER_TYPE": node.role,
            "WORKER_NUM": str(targets["worker"]),
            # Output must be in the log even if the node is killed at once.
            "PYTHONUNBUFFERED": "1",
            **self._launcher.environment(place),
        }
        return NodeRequest(
            name=node.name,
            role=node.role,
            command=self._launcher.command(self._spec.model.job_command),
            environment=environment,
            place=node.slot,
            places=targets[node.role],
            memory_doublings=node.memory_doublings,
        )
