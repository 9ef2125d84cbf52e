"""The address and the rights of the dashboard, checked before anything is started.

The pages show logs and training data, and may change jobs. So the dashboard listens on loopback, and beyond it only
with TLS: without encryption, the token could be read on the way.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import UserError

DEFAULT_PORT = 8580
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """`port`: None takes the default port, or any free one if that is in use; 0 takes any free one."""

    bind: str = "127.0.0.1"
    port: int | None = None
    # Look on the cluster only, in this namespace.
    namespace: str = ""
    allows_actions: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # The token of each user decides, by the cluster's reviews, in place of the dashboard's own.
    asks_cluster: bool = False
    # Names by which browsers may reach it, beside those of the address.
    host_names: tuple[str, ...] = ()

    @property
    def is_everywhere(self) -> bool:
        """Jobs of all namespaces are shown, to each user those that the user may see."""
        return self.asks_cluster and not self.namespace

    @property
    def uses_tls(self) -> bool:
        return self.tls_cert is not None

    @property
    def scheme(self) -> str:
        return "https" if self.uses_tls else "http"

    @property
    def is_loopback(self) -> bool:
        return self.bind == "localhost" or _is_loopback_address(self.bind)

    def check(self) -> None:
        """Raises `UserError` for what is not safe, or cannot work."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UserError("--tls_cert and --tls_key belong together: give both, or neither.")
        for flag, path in (("tls_cert", self.tls_cert), ("tls_key", self.tls_key)):
            if path is not None and not path.is_file():
                raise UserError(f"--{flag}: there is no file {path}.")
        if not self.is_loopback and not self.uses_tls:
            raise UserError(
                f"--bind={self.bind} can be reached from other machines, so the dashboard needs TLS there.",
                hint="Give --tls_cert and --tls_key. Or leave it on 127.0.0.1, and forward its port: "
                f"ssh -L {self.port or DEFAULT_PORT}:127.0.0.1:{self.port or DEFAULT_PORT} THIS_MACHINE",
            )

    def allowed_hosts(self) -> frozenset[str]:
        """Returns the names that a request may have in its Host header, without the port.

        Any other name there is one that an attacker's name server resolved to this machine.
        """
        names = {name.lower() for name in self.host_names}
        if self.is_loopback:
            names.update(_LOOPBACK_NAMES)
        else:
            names.update({socket.gethostname().lower(), socket.getfqdn().lower(), *_LOOPBACK_NAMES})
        names.add(self.bind.lower())
        return frozenset(names)

    @property
    def shown_host(self) -> str:
        """The host in the link that is printed."""
        if self.host_names:
            return self.host_names[0]
        if self.bind in ("0.0.0.0", "::"):
            return socket.gethostname()
        return f"[{self.bind}]" if ":" in self.bind else self.bind


def _is_loopback_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
