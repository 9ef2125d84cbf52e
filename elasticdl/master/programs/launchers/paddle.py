"""Paddle programs: the variables that `paddle.distributed` reads.

They need addresses. On Kubernetes only jobs with parameter servers have them; without them, a program gets none of
these variables and trains as a single process.
"""

from __future__ import annotations

from elasticdl.master.programs.launchers.launcher import Launcher, NodePlace

_ROLES = {"ps": "PSERVER"}


class PaddleLauncher(Launcher):
    def environment(self, place: NodePlace) -> dict[str, str]:
        own = place.addresses.get(place.role, [])
        if place.slot >= len(own):
            return {}
        trainers = place.addresses.get("worker", [])[: max(place.targets["worker"], place.slot + 1)]
        host, _, port = own[place.slot].rpartition(":")
        return {
            "TRAINING_ROLE": _ROLES.get(place.role, "TRAINER"),
            "PADDLE_TRAINER_ID": str(place.slot),
            "PADDLE_TRAINERS_NUM": str(place.targets["worker"]),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(trainers),
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(place.addresses.get("ps", [])),
            "PADDLE_CURRENT_ENDPOINT": own[place.slot],
            "PADDLE_PORT": port,
            "POD_IP": host,
        }
