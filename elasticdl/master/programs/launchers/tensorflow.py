"""TensorFlow programs: TF_CONFIG tells the nodes how they find each other, and what each of them is.

Addresses belong to places and not to processes, so the replacement of a killed worker has its index and its address,
and the others keep their configuration. TensorFlow's parameter servers must know the address of every worker that
will ever connect to them, so their configuration includes places that are still empty: that is how far such a job can
grow. The configuration of other nodes has only the desired ones.
"""

from __future__ import annotations

import json

from elasticdl.master.programs.launchers.launcher import Launcher, NodePlace

# In the order of TensorFlow's documentation. Evaluators are not part of the cluster.
_PEERS = ("chief", "worker", "ps")


class TensorflowLauncher(Launcher):
    def environment(self, place: NodePlace) -> dict[str, str]:
        cluster = {}
        for peer in _PEERS:
            known = place.addresses.get(peer, [])
            # A place beyond the target is known only to its own node and to the parameter servers.
            count = len(known) if place.role == "ps" else place.targets.get(peer, 0)
            if place.role == peer:
                count = max(count, place.slot + 1)
            if known[:count]:
                cluster[peer] = list(known[:count])
        task = {"type": place.role, "index": place.slot}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
