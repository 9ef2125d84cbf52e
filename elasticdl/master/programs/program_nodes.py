"""Nodes that run a program of the user's own: their command and their environment.

The environment tells who the node is (WORKER_ID, WORKER_TYPE, WORKER_NUM), where the master is, TF_CONFIG where it is
asked for, and Paddle's variables.
"""

from __future__ import annotations

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.programs.node_environment import Surroundings
from elasticdl.master.programs.node_environment import search_path as search_path
from elasticdl.master.programs.shell_command import command_line
from elasticdl.master.programs.tf_config import tf_config
from elasticdl.platforms.platform import NodeRequest

_PADDLE_ROLES = {"ps": "PSERVER"}


class ProgramNodes:
    def __init__(
        self,
        spec: JobSpec,
        *,
        environment: dict[str, str],
        surroundings: Surroundings,
    ) -> None:
        self._spec = spec
        self._environment = environment
        self._surroundings = surroundings

    def request(self, node: Node, *, addresses: dict[str, list[str]], targets: dict[str, int]) -> NodeRequest:
        environment = {
            **self._surroundings.search_path,
            **self._environment,
            **self._spec.nodes.envs,
            "ELASTICDL_NODE": node.name,
            "WORKER_ID": str(node.number),
            "WORKER_TYPE": node.role,
            "WORKER_NUM": str(targets["worker"]),
            # What a node prints must be in its log when it is killed the next moment.
            "PYTHONUNBUFFERED": "1",
            **_paddle(node, addresses, targets),
        }
        if self._spec.model.need_tf_config:
            environment["TF_CONFIG"] = tf_config(
                role=node.role, slot=node.slot, addresses=addresses, targets=targets
            )
        return NodeRequest(
            name=node.name,
            role=node.role,
            command=command_line(self._spec.model.job_command),
            environment=environment,
            place=node.slot,
            places=targets[node.role],
            memory_doublings=node.memory_doublings,
        )


def _paddle(node: Node, addresses: dict[str, list[str]], targets: dict[str, int]) -> dict[str, str]:
    trainers = addresses.get("worker", [])[: max(targets["worker"], node.slot + 1)]
    mine = addresses.get(node.role, [])
    if node.slot >= len(mine):
        return {}
    host, _, port = mine[node.slot].rpartition(":")
    return {
        "TRAINING_ROLE": _PADDLE_ROLES.get(node.role, "TRAINER"),
        "PADDLE_TRAINER_ID": str(node.slot),
        "PADDLE_TRAINERS_NUM": str(targets["worker"]),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(trainers),
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(addresses.get("ps", [])),
        "PADDLE_CURRENT_ENDPOINT": mine[node.slot],
        "PADDLE_PORT": port,
        "POD_IP": host,
    }
