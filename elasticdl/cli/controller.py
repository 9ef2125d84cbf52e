"""`elasticdl controller`: keeps the TrainingJobs of a cluster at the sizes that the planner decides."""

from __future__ import annotations

from pathlib import Path

import click

from elasticdl.cli.group import UserPath

_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}


@click.command(context_settings=_CONTEXT)
@click.option(
    "--kubeconfig",
    type=UserPath(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Configuration of kubectl by which to reach the cluster. By default, that of kubectl; inside a pod, its "
    "service account.",
)
@click.option(
    "--context", default="", metavar="NAME", help="Context in the configuration; by default, its own."
)
@click.option(
    "--namespace",
    default="",
    metavar="NAME",
    help="Namespace of the Lease by which one of several controllers leads. TrainingJobs of all namespaces are "
    "controlled.",
)
@click.option(
    "--identity", default="", metavar="NAME", help="Name in the Lease; by default, of this host and process."
)
def controller(kubeconfig: Path | None, context: str, namespace: str, identity: str) -> None:
    """Run the controller of a cluster's TrainingJobs, inside or outside the cluster, until it is interrupted.

    Several may run: one leads, the others stand by.
    """
    import asyncio
    import contextlib
    import logging
    import os
    import signal
    import socket

    from elasticdl.controller.controller import Controller
    from elasticdl.errors import UserError
    from elasticdl.platforms.kubernetes.client import Cluster
    from elasticdl.platforms.kubernetes.kubeconfig import find_access

    if kubeconfig is not None and not kubeconfig.exists():
        raise UserError(f"--kubeconfig: there is no file {kubeconfig}.")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    environment = dict(os.environ)
    if kubeconfig is not None:
        environment["KUBECONFIG"] = str(kubeconfig)
    access = find_access(namespace=namespace, context=context, environment=environment)
    name = identity or f"{socket.gethostname()}-{os.getpid()}"

    async def run() -> None:
        async with Cluster(access, patience=15.0) as cluster:
            work = asyncio.create_task(Controller(cluster, identity=name).run())
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, work.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await work

    asyncio.run(run())
