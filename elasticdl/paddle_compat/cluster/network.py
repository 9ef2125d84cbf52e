"""The network interface of a node, and its free ports."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Iterable

from elasticdl.errors import UserError

_SIOCGIFADDR = 0x8915


def interface_address(name: str) -> str:
    """The IPv4 address of an interface. Raises `LookupError` if there is no such interface or it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise LookupError(name) from error
    return socket.inet_ntoa(answer[20:24])


def interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def check_ports(address: str, ports: Iterable[int]) -> None:
    """Raises `UserError` if one is in use: Paddle would fail much later, and less clearly."""
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise UserError(
                        f"Port {port} of {address} is in use.",
                        hint="Choose another CONF_PADDLE_PORT, or stop what listens there.",
                    ) from error
                raise UserError(f"Port {port} of {address} cannot be used: {error.strerror}.") from error
