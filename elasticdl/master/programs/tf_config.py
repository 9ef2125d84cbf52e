"""TF_CONFIG: how the nodes of a TensorFlow program find each other, and who each of them is.

Addresses belong to places and not to processes, so the replacement of a killed worker has its index and its address,
and nobody else has to be told. TensorFlow's parameter servers must know the address of every worker that will ever
send them something, so they are told of places that are empty as yet: that is how far such a job can grow.
Everybody else is told only who is there.
"""

from __future__ import annotations

import json

# Places for workers beyond those that the job begins with.
SPARE_WORKERS = 16

# The order in which TensorFlow's documents list them. An evaluator is nobody's peer.
_PEERS = ("chief", "worker", "ps")


def places(targets: dict[str, int]) -> dict[str, int]:
    """How many addresses each role needs."""
    spare = {"worker": SPARE_WORKERS if targets.get("ps") else 0}
    return {role: count + spare.get(role, 0) for role, count in targets.items()}


def tf_config(*, role: str, slot: int, addresses: dict[str, list[str]], targets: dict[str, int]) -> str:
    """The environment variable for one node."""
    cluster = {}
    for peer in _PEERS:
        known = addresses.get(peer, [])
        # A place beyond the target is only told to those who live in it, and to the parameter servers.
        count = len(known) if role == "ps" else targets.get(peer, 0)
        if role == peer:
            count = max(count, slot + 1)
        if known[:count]:
            cluster[peer] = known[:count]
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": slot}})
