"""Serves the dashboard beside the controller, as a process of its own.

A process, because the controller must not wait for the pages: a request for a thousand jobs takes processor time, a
crash or a leak takes more. It is `elasticdl dashboard --cluster_auth` for all namespaces, so that each user sees what
their own token allows, whichever replica answers.

The certificate is that of the admission webhook, which all replicas share and whose name is that of the Service, or one
from files. When it changes, the process is started again with it.

Failure modes
    The process ends: it is started again, with backoff. Its packages are not installed: it is not started, which the
    log says. There is no certificate yet: it starts when there is one. The container is out of memory: the kernel kills
    this process first; where it kills whole containers, another replica takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from elasticdl.backoff import Backoff
from elasticdl.controller.serving.webhook import NAME, SECRET_NAME, files_of
from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.local.process_tree import die_with_parent

log = logging.getLogger("elasticdl.controller")

_PACKAGES = ("starlette", "uvicorn")
_KILL_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class CompanionSettings:
    """`tls_cert` and `tls_key`: without them, the certificate of the webhook is used."""

    bind: str
    port: int
    tls_cert: Path | None = None
    tls_key: Path | None = None
    host_names: tuple[str, ...] = ()
    allows_actions: bool = False

    def check(self, *, has_webhook: bool) -> None:
        """Raises `UserError` for what cannot work."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UserError(
                "--dashboard_tls_cert and --dashboard_tls_key belong together: give both, or neither."
            )
        if self.tls_cert is None and not has_webhook:
            raise UserError(
                "--dashboard_port needs a certificate.",
                hint="Give --dashboard_tls_cert and --dashboard_tls_key, or --webhook_port, whose certificate is used.",
            )


@dataclass(frozen=True, kw_only=True)
class CompanionTiming:
    # How often it is looked for a certificate, and for a newer one.
    poll_seconds: float = 2.0
    refresh_seconds: float = 60.0
    backoff: Backoff = field(default_factory=lambda: Backoff(initial_seconds=1.0, max_seconds=60.0))
    # A process that has run for so long did not fail at its start.
    settled_seconds: float = 60.0


class DashboardCompanion:
    """`command`: of the process, without its flags. `environment`: beside that of the controller."""

    name = "the dashboard"

    def __init__(
        self,
        settings: CompanionSettings,
        *,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "elasticdl", "dashboard"),
        timing: CompanionTiming | None = None,
    ) -> None:
        self._settings = settings
        self._environment = environment or {}
        self._command = command
        self._timing = timing or CompanionTiming()
        self._trouble = ""

    async def run(self, cluster: Cluster) -> None:
        """Runs until cancelled. `cluster`: of the controller's namespace."""
        for package in _PACKAGES:
            if importlib.util.find_spec(package) is None:
                log.warning(
                    "Not serving the dashboard: it needs the package %s. %s",
                    package,
                    install_command("dashboard"),
                )
                return
        failures = 0
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            while True:
                certificate = await self._certificate(cluster)
                while certificate is None:
                    await asyncio.sleep(self._timing.poll_seconds)
                    certificate = await self._certificate(cluster)
                began = time.monotonic()
                try:
                    code = await self._serve(cluster, certificate, folder)
                except OSError as error:
                    log.warning("Cannot start the dashboard: %s", error)
                    code = error.errno or 1
                if code is None:
                    log.info("Restarting the dashboard: its certificate has changed")
                    failures = 0
                    continue
                failures = 1 if time.monotonic() - began > self._timing.settled_seconds else failures + 1
                delay = self._timing.backoff.delay(failures)
                log.warning(
                    "Restarting the dashboard in %.0f s: exit code %d (%d in a row)", delay, code, failures
                )
                await asyncio.sleep(delay)

    async def _serve(self, cluster: Cluster, certificate: tuple[bytes, bytes], folder: Path) -> int | None:
        """Returns the exit code of the process, or None after the certificate has changed."""
        paths = folder / "tls.crt", folder / "tls.key"
        for path, content in zip(paths, certificate, strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *self._flags(cluster.namespace, *paths),
            # Its own folder: the file system of the pod cannot be written.
            env={**os.environ, **self._environment, "ELASTICDL_HOME": str(folder / "home")},
            stdin=asyncio.subprocess.DEVNULL,
            preexec_fn=partial(_prepare_process, os.getpid()),
        )
        log.info("Serving the dashboard at %s:%d", self._settings.bind, self._settings.port)
        ended = asyncio.create_task(process.wait())
        try:
            while True:
                await asyncio.wait({ended}, timeout=self._timing.refresh_seconds)
                if ended.done():
                    return ended.result()
                newer = await self._certificate(cluster)
                if newer not in (None, certificate):
                    return None
        finally:
            await _end(process, ended)

    def _flags(self, namespace: str, certificate: Path, key: Path) -> list[str]:
        service = f"{NAME}.{namespace}"
        names = (NAME, service, f"{service}.svc", f"{service}.svc.cluster.local", *self._settings.host_names)
        return [
            "--cluster_auth",
            f"--bind={self._settings.bind}",
            f"--port={self._settings.port}",
            f"--tls_cert={certificate}",
            f"--tls_key={key}",
            *(f"--host_name={name}" for name in names),
            *(["--allow_actions"] if self._settings.allows_actions else []),
        ]

    async def _certificate(self, cluster: Cluster) -> tuple[bytes, bytes] | None:
        """Returns the certificate and its key; None, with a line in the log, if there is none."""
        try:
            found = await self._read_certificate(cluster)
            self._trouble = ""
        except UserError as error:
            found = None
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("Cannot read the certificate of the dashboard: %s", error)
        return found

    async def _read_certificate(self, cluster: Cluster) -> tuple[bytes, bytes] | None:
        settings = self._settings
        if settings.tls_cert is None or settings.tls_key is None:
            files = files_of(await cluster.get("Secret", SECRET_NAME))
            return (files["tls.crt"].encode(), files["tls.key"].encode()) if files else None
        try:
            return settings.tls_cert.read_bytes(), settings.tls_key.read_bytes()
        except OSError as error:
            raise UserError(f"{error.filename}: {error.strerror}.") from error


def _prepare_process(parent: int) -> None:
    """For a child just forked."""
    die_with_parent(parent)
    # Any user may make a process the first to be killed, unless a sandbox hides the file: then it takes its chances.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


async def _end(process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
    if not ended.done():
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait({ended}, timeout=_KILL_SECONDS)
    if not ended.done():
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await ended
