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
@click.option(
    "--http_port",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="PORT",
    help="Port of /healthz, /readyz and /metrics; 0 takes any free one. By default, there is none.",
)
@click.option(
    "--webhook_port",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="PORT",
    help="Port of the admission webhook, which refuses TrainingJobs that cannot be run. Only inside the cluster; "
    "edl-controller.yaml has what else it needs. By default, there is none.",
)
@click.option(
    "--dashboard_port",
    type=click.IntRange(1, 65535),
    default=None,
    metavar="PORT",
    help="Port of the dashboard of all namespaces, with TLS; each user sees what their own token allows. Its "
    "certificate is that of the webhook, unless --dashboard_tls_cert names another. By default, there is none.",
)
@click.option(
    "--dashboard_tls_cert",
    type=UserPath(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Certificate of the dashboard, with those it is signed by, in PEM format; read again when it changes.",
)
@click.option(
    "--dashboard_tls_key",
    type=UserPath(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Private key of the certificate, in PEM format.",
)
@click.option(
    "--dashboard_host_name",
    "dashboard_host_names",
    multiple=True,
    metavar="NAME",
    help="Name by which browsers may reach the dashboard, beside those of the Service; may be given several times.",
)
@click.option(
    "--allow_actions",
    is_flag=True,
    help="Let the pages of the dashboard scale, stop, resume and delete jobs, by the rights of their user.",
)
@click.option(
    "--bind", default="127.0.0.1", metavar="ADDRESS", help="Address to listen at; 0.0.0.0 inside a pod."
)
def controller(
    kubeconfig: Path | None,
    context: str,
    namespace: str,
    identity: str,
    http_port: int | None,
    webhook_port: int | None,
    dashboard_port: int | None,
    dashboard_tls_cert: Path | None,
    dashboard_tls_key: Path | None,
    dashboard_host_names: tuple[str, ...],
    allow_actions: bool,
    bind: str,
) -> None:
    """Run the controller of a cluster's TrainingJobs, inside or outside the cluster, until it is interrupted.

    Several may run: one leads, the others stand by.
    """
    import asyncio
    import logging
    import os
    import socket

    from elasticdl.controller.process import Listening, run_controller
    from elasticdl.dashboard.companion import CompanionSettings, DashboardCompanion
    from elasticdl.errors import UserError
    from elasticdl.platforms.kubernetes.kubeconfig import find_access

    if kubeconfig is not None and not kubeconfig.exists():
        raise UserError(f"--kubeconfig: there is no file {kubeconfig}.")
    companions = []
    if dashboard_port is not None:
        settings = CompanionSettings(
            bind=bind,
            port=dashboard_port,
            tls_cert=dashboard_tls_cert,
            tls_key=dashboard_tls_key,
            host_names=dashboard_host_names,
            allows_actions=allow_actions,
        )
        settings.check(has_webhook=webhook_port is not None)
        if context:
            raise UserError(
                "--dashboard_port uses the current context of the configuration.",
                hint="Omit --context: `kubectl config use-context NAME` chooses one.",
            )
        given = {"KUBECONFIG": str(kubeconfig)} if kubeconfig is not None else {}
        companions.append(DashboardCompanion(settings, environment=given))
    elif dashboard_tls_cert or dashboard_tls_key or dashboard_host_names or allow_actions:
        raise UserError(
            "--dashboard_tls_cert, --dashboard_host_name and --allow_actions need --dashboard_port."
        )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    environment = dict(os.environ)
    if kubeconfig is not None:
        environment["KUBECONFIG"] = str(kubeconfig)
    access = find_access(namespace=namespace, context=context, environment=environment)
    name = identity or f"{socket.gethostname()}-{os.getpid()}"

    listening = Listening(bind=bind, http_port=http_port, webhook_port=webhook_port)
    asyncio.run(run_controller(access, identity=name, listening=listening, companions=companions))
