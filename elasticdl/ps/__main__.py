"""`python -m elasticdl.ps`: the process of a parameter server.

Its environment says who it is (ELASTICDL_NODE, WORKER_ID), where its master is (MASTER_ADDR), which token
opens it (the file ELASTICDL_TOKEN_FILE), where it listens itself (ELASTICDL_BIND and ELASTICDL_PORT, or else on this
machine alone, at any port), and where the others find it if that is another address (ELASTICDL_ADVERTISE, HOST:PORT).
All else it learns from the master.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Mapping

from elasticdl.errors import UserError
from elasticdl.jobs.spec import from_yaml
from elasticdl.platforms.platform import (
    EXIT_COMPLETED,
    EXIT_DEFINITION_ERROR,
    EXIT_OUT_OF_MEMORY,
    EXIT_TERMINATED,
)
from elasticdl.ps.core.memory_limit import room_for_rows
from elasticdl.ps.server.identity import ADVERTISE, BIND, PORT, Identity, port_of
from elasticdl.ps.server.membership import Member, NodeRejected
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire.security import NotTrusted

log = logging.getLogger("elasticdl.ps")

# Neither what was wanted nor something that a user can put right.
EXIT_FAULT = 1
_SIGNAL_SECONDS = 0.5
# Connections of some ten thousand workers.
_OPEN = 1 << 16


def main(environment: Mapping[str, str]) -> int:
    """Raises `UserError` if the environment does not say who this is."""
    identity = Identity.of_environment(environment)
    port = port_of(environment, PORT)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    allow_connections()
    # Signals only ever wake the main thread, which does nothing but wait: gRPC's calls are not to be
    # interrupted by exceptions from nowhere. A simple queue is the one thing to wait with that a handler may use in the
    # middle of that waiting: an event's lock would be held.
    over: queue.SimpleQueue[int] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, frame: over.put(EXIT_TERMINATED))
    server = ParameterServer(
        token=identity.token,
        host=environment.get(BIND) or "127.0.0.1",
        port=port,
        advertise=environment.get(ADVERTISE) or None,
    )
    member = Member(identity, server, settings_of)

    def serve() -> None:
        code = EXIT_FAULT
        try:
            code = _serve(member)
        finally:
            over.put(code)

    threading.Thread(target=serve, name="membership", daemon=True).start()
    # The first reason counts: the thread ends after a signal, too.
    code = _wait_for(over)
    member.close()
    return code


def allow_connections() -> None:
    """Every worker has a few. By itself a process often may have no more than 1024 open, and if it asks, many more."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN if most == resource.RLIM_INFINITY else min(_OPEN, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _wait_for(over: queue.SimpleQueue[int]) -> int:
    while True:
        # Never for long: a signal that comes just before the thread falls asleep does not wake it.
        with contextlib.suppress(queue.Empty):
            return over.get(timeout=_SIGNAL_SECONDS)


def _serve(member: Member) -> int:
    try:
        member.run()
    except NodeRejected as error:
        log.info("Exiting, replaced by another process: %s", error)
    except NotTrusted as error:
        log.error("%s", error)
        return EXIT_FAULT
    except UserError as error:
        log.error("%s", error)
        member.fail(str(error))
        return EXIT_DEFINITION_ERROR
    except MemoryError:
        log.exception("Out of memory.")
        return EXIT_OUT_OF_MEMORY
    except BaseException:
        log.exception("A fault of the parameter server itself.")
        return EXIT_FAULT
    return EXIT_COMPLETED


def settings_of(job_spec: str) -> ServerSettings:
    """Returns the settings of parameter servers in the description of a job."""
    spec = from_yaml(job_spec)
    logging.getLogger().setLevel(spec.cluster.log_level)
    memory = spec.nodes.ps_resource_limit.memory
    return ServerSettings(
        asynchronous=spec.training.use_async,
        grads_to_wait=spec.training.grads_to_wait,
        lr_staleness_modulation=spec.training.lr_staleness_modulation,
        sync_version_tolerance=spec.training.sync_version_tolerance,
        max_bad_gradients=spec.training.max_bad_gradients,
        memory_limit=room_for_rows(int(memory.amount)) if memory is not None else 0,
        model_zoo=spec.model.model_zoo,
    )


def _start() -> int:
    try:
        return main(os.environ)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_DEFINITION_ERROR


if __name__ == "__main__":
    sys.exit(_start())
