"""The variables that Paddle's fleet reads, from the flags of the guide."""

from __future__ import annotations

import logging
import os
import socket
import time

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.arguments import Arguments

log = logging.getLogger("elasticdl.paddle")

_CONNECT_SECONDS = 2.0
_PAUSE_SECONDS = 0.1


def hosts_of(arguments: Arguments) -> list[str]:
    return [each.strip() for each in arguments.text("pservers").split(",") if each.strip()]


def _common(arguments: Arguments) -> dict[str, str]:
    hosts = hosts_of(arguments)
    wanted = arguments.number("num_gradient_servers")
    trainer_port = (
        arguments.number("port") + arguments.number("ports_num") + arguments.number("ports_num_for_sparse")
    )
    # Every node has a trainer; with fewer nodes than trainers (by hand, on one host) the ports count up.
    trainers = [
        f"{hosts[index % len(hosts)]}:{trainer_port + index // len(hosts) * 2}" for index in range(wanted)
    ]
    return {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(arguments.servers),
        "PADDLE_TRAINERS_NUM": str(wanted),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(trainers),
        "PADDLE_WITH_GLOO": "1" if wanted > 1 else "0",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": f"{hosts[0]}:{trainer_port + 1}",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", arguments.text("trainer_count")),
    }


def trainer_variables(arguments: Arguments) -> dict[str, str]:
    common = _common(arguments)
    number = arguments.number("trainer_id")
    endpoints = common["PADDLE_TRAINER_ENDPOINTS"].split(",")
    if number >= len(endpoints):
        raise UserError(f"--trainer_id={number} is not below --num_gradient_servers={len(endpoints)}.")
    host, _, port = endpoints[number].rpartition(":")
    return {
        **common,
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINER_ID": str(number),
        "POD_IP": host,
        "PADDLE_PORT": port,
        "PADDLE_SAVE_DIR": arguments.text("save_dir"),
    }


def server_variables(arguments: Arguments, address: str, port: int) -> dict[str, str]:
    return {**_common(arguments), "TRAINING_ROLE": "PSERVER", "POD_IP": address, "PADDLE_PORT": str(port)}


def wait_for_servers(endpoints: list[str]) -> None:
    """Waits until all servers accept connections; the node kills this process if they never do."""
    waiting = list(endpoints)
    said = False
    while waiting:
        waiting = [each for each in waiting if not _accepts(each)]
        if waiting:
            if not said:
                log.info("Waiting for parameter servers: %s", ", ".join(waiting))
                said = True
            time.sleep(_PAUSE_SECONDS)


def _accepts(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False
