"""`elasticdl dashboard`: a web page for the jobs of this machine and of the cluster."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from elasticdl.cli.group import UserPath
from elasticdl.errors import UserError
from elasticdl.extras import install_command

_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}


@click.command(context_settings=_CONTEXT)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Port to listen at; 0 takes any free one. By default 8580, or any free one if that is in use.",
)
@click.option(
    "--bind",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen at. Beyond this machine only with --tls_cert and --tls_key.",
)
@click.option(
    "--tls_cert",
    type=UserPath(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Certificate of the server, with those it is signed by, in PEM format.",
)
@click.option(
    "--tls_key",
    type=UserPath(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Private key of the certificate, in PEM format.",
)
@click.option(
    "--host_name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="Name by which browsers may reach the dashboard, beside those of its address; may be given several times.",
)
@click.option("--allow_actions", is_flag=True, help="Let the pages scale, stop, resume and delete jobs.")
@click.option(
    "--namespace", default="", metavar="NAME", help="Show only jobs of the cluster, in this namespace."
)
@click.option(
    "--cluster_auth",
    is_flag=True,
    help="Ask the cluster who a user is and what they may see (TokenReview, SubjectAccessReview). Without --namespace, "
    "jobs of all namespaces that a user may see are shown.",
)
@click.option(
    "--new_token", is_flag=True, help="Replace the token: links and sessions until now are refused."
)
@click.option("--show_link", is_flag=True, help="Print the link to the dashboard that runs, and exit.")
def dashboard(
    port: int | None,
    bind: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    host_names: tuple[str, ...],
    allow_actions: bool,
    namespace: str,
    cluster_auth: bool,
    new_token: bool,
    show_link: bool,
) -> None:
    """Serve a web page with all jobs of this machine and of the cluster, until it is interrupted.

    The link that is printed has a token: who has it may read the logs of your jobs.
    """
    from elasticdl.dashboard.registry import DashboardRegistry
    from elasticdl.dashboard.settings import DashboardSettings

    registry = DashboardRegistry()
    if show_link:
        link = registry.link()
        if link is None:
            raise UserError("No dashboard runs.", hint="`elasticdl dashboard` starts one.")
        click.echo(link)
        return
    settings = DashboardSettings(
        bind=bind,
        port=port,
        namespace=namespace,
        allows_actions=allow_actions,
        asks_cluster=cluster_auth,
        tls_cert=tls_cert,
        tls_key=tls_key,
        host_names=host_names,
    )
    settings.check()
    try:
        from elasticdl.dashboard.server.dashboard_server import DashboardServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise UserError(
            f"The dashboard needs the package {error.name}, which is not installed: it belongs to the extra "
            "elasticdl[dashboard].",
            hint=install_command("dashboard"),
        ) from None
    server = DashboardServer(settings, registry=registry, is_new_token=new_token)
    click.echo(f"Dashboard: {server.link}")
    click.echo(
        "Ctrl-C ends it. Users sign in with their own token: kubectl create token ACCOUNT"
        if cluster_auth
        else "Ctrl-C ends it. The link is for you alone: who has it may read the logs of your jobs.",
        err=True,
    )
    # The usual end.
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
