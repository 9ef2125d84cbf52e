"""The controller and its servers as one process, until it is signalled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from elasticdl.controller.controller import Controller
from elasticdl.controller.serving.admission import PATH, review
from elasticdl.controller.serving.health import health_routes
from elasticdl.controller.serving.http_server import HttpServer
from elasticdl.controller.serving.webhook import WebhookKeeper, server_context
from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import Access

if TYPE_CHECKING:
    from elasticdl.controller.serving.metrics import ControllerMetrics

log = logging.getLogger("elasticdl.controller")

# How long requests are retried while the API server does not answer.
_PATIENCE_SECONDS = 15.0
_SYNC_POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Listening:
    """The ports of the process. `http_port`: probes and metrics; `webhook_port`: the admission webhook. None: no such
    port.
    """

    bind: str = "127.0.0.1"
    http_port: int | None = None
    webhook_port: int | None = None


class Companion(Protocol):
    """Work beside the controller, which goes on without it if it fails."""

    name: str

    async def run(self, cluster: Cluster) -> None:
        """`cluster`: of the controller's namespace."""


async def run_controller(
    access: Access, *, identity: str, listening: Listening, companions: Sequence[Companion] = ()
) -> None:
    """Runs until SIGINT or SIGTERM; then gives the Lease up."""
    async with Cluster(access, patience=_PATIENCE_SECONDS) as cluster:
        metrics = _metrics() if listening.http_port is not None else None
        controller = Controller(cluster, identity=identity, metrics=metrics)
        with contextlib.ExitStack() as servers:
            if listening.http_port is not None and metrics is not None:
                routes = health_routes(loop_age=controller.loop_age, unsynced=controller.unsynced)
                server = HttpServer(
                    bind=listening.bind, port=listening.http_port, gets={**routes, **metrics.routes()}
                )
                servers.enter_context(server)
                log.info("Serving probes and metrics at %s:%d", listening.bind, server.port)
            work = [controller.run()]
            if listening.webhook_port is not None:
                tls = server_context()
                server = HttpServer(
                    bind=listening.bind, port=listening.webhook_port, posts={PATH: review}, tls=tls
                )
                servers.enter_context(server)
                log.info("Serving the admission webhook at %s:%d", listening.bind, server.port)
                keeper = WebhookKeeper(cluster, tls, is_leader=lambda: controller.is_leader)
                work.append(keeper.run())
            work += [run_companion(each, cluster, unsynced=controller.unsynced) for each in companions]
            await _until_signalled(work)


async def run_companion(
    companion: Companion, cluster: Cluster, *, unsynced: Callable[[], Sequence[str]]
) -> None:
    """Starts when the controller has listed what it watches, and never ends: that would end the controller."""
    while unsynced():
        await asyncio.sleep(_SYNC_POLL_SECONDS)
    try:
        await companion.run(cluster)
    except Exception:
        log.exception("The controller goes on without %s", companion.name)
    await asyncio.Event().wait()


def _metrics() -> ControllerMetrics:
    try:
        from elasticdl.controller.serving.metrics import ControllerMetrics
    except ModuleNotFoundError as error:
        raise UserError(
            f"Metrics of the controller need the package {error.name}.",
            hint=install_command("kubernetes"),
        ) from error
    return ControllerMetrics()


async def _until_signalled(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.create_task(each) for each in work]
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    stop = asyncio.create_task(stopped.wait())
    try:
        # Each of them runs indefinitely: one that ends has failed.
        done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (*tasks, stop):
            task.cancel()
        await asyncio.gather(*tasks, stop, return_exceptions=True)
