"""Runs the dashboard: binds its port, publishes its address, serves until it is interrupted.

Failure modes
    The port is in use: `UserError`, or any free port where none was asked for. The certificate cannot be loaded:
    `UserError` before anything is served.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl

import uvicorn

from elasticdl.dashboard.data.job_source import JobSource
from elasticdl.dashboard.registry import DashboardRegistry, link
from elasticdl.dashboard.server.access import Access, cookie_name
from elasticdl.dashboard.server.application import Dashboard
from elasticdl.dashboard.server.cluster_access import ClusterAccess
from elasticdl.dashboard.server.sealed_sessions import SealedSessions
from elasticdl.dashboard.settings import DEFAULT_PORT, DashboardSettings
from elasticdl.errors import UserError

# Streams are open as long as pages are; they end with the server.
_SHUTDOWN_SECONDS = 1
_BACKLOG = 128
_MOST_CONNECTIONS = 500


class DashboardServer:
    """Listens from the start, answers in `run`."""

    def __init__(
        self, settings: DashboardSettings, *, registry: DashboardRegistry, is_new_token: bool = False
    ) -> None:
        settings.check()
        self._registry = registry
        self._asks_cluster = settings.asks_cluster
        self._token = registry.token(is_new=is_new_token)
        self._socket = _listen(settings)
        port = int(self._socket.getsockname()[1])
        self.address = f"{settings.scheme}://{settings.shown_host}:{port}"
        authorizer = (
            ClusterAccess(
                namespace=settings.namespace,
                cookie_name=cookie_name(port),
                sessions=SealedSessions(_session_secret(settings)),
            )
            if settings.asks_cluster
            else None
        )
        access = Access(
            token=self._token,
            scheme=settings.scheme,
            port=port,
            hosts=settings.allowed_hosts(),
            any_address=not settings.is_loopback,
            allows_actions=settings.allows_actions,
            authorizer=authorizer,
        )
        source = JobSource(namespace=settings.namespace, everywhere=settings.is_everywhere)
        dashboard = Dashboard(source, access)
        config = uvicorn.Config(
            dashboard.application(),
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            # Headers of proxies would be taken for the truth about a client.
            proxy_headers=False,
            lifespan="off",
            http="h11",
            loop="asyncio",
            ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            limit_concurrency=_MOST_CONNECTIONS,
        )
        if settings.tls_cert is not None:
            config.ssl_certfile, config.ssl_keyfile = settings.tls_cert, settings.tls_key
            _check_certificate(settings)
        self._server = _Server(config, dashboard)

    @property
    def link(self) -> str:
        """Opens the dashboard, with its token if that is what it asks for."""
        if self._asks_cluster:
            return f"{self.address}/"
        return link(self.address, self._token)

    def run(self) -> None:
        """Serves until interrupted, or until `close` in another thread."""
        running = self._registry.running(self.address, takes_token=not self._asks_cluster)
        with running, contextlib.closing(self._socket):
            self._server.run(sockets=[self._socket])

    def close(self) -> None:
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Ends the streams first: otherwise a page that is open would hold up the end."""

    def __init__(self, config: uvicorn.Config, dashboard: Dashboard) -> None:
        super().__init__(config)
        self._dashboard = dashboard

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._dashboard.close()
        await super().shutdown(sockets)


def _listen(settings: DashboardSettings) -> socket.socket:
    ports = [DEFAULT_PORT, 0] if settings.port is None else [settings.port]
    problem = ""
    for port in ports:
        try:
            return _bound(settings.bind, port)
        except (OSError, OverflowError) as error:
            problem = getattr(error, "strerror", None) or str(error)
    raise UserError(
        f"The dashboard cannot be served at {settings.bind}:{ports[0]}: {problem}.",
        hint="Choose another --port, or another --bind.",
    )


def _bound(bind: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((bind, port))
        found.listen(_BACKLOG)
    except (OSError, OverflowError):
        found.close()
        raise
    return found


def _session_secret(settings: DashboardSettings) -> bytes:
    """Returns the private key, which servers behind one name share; without one, sessions end with this server."""
    if settings.tls_key is None:
        return secrets.token_bytes(32)
    try:
        return settings.tls_key.read_bytes()
    except OSError as error:
        raise UserError(f"--tls_key cannot be read: {error.strerror}.") from error


def _check_certificate(settings: DashboardSettings) -> None:
    assert settings.tls_cert is not None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"--tls_cert and --tls_key cannot be used: {getattr(error, 'reason', None) or error}."
        ) from error
