"""A kept port goes to no other program while its owner is away: shown with sockets that may have this one port only."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from elasticdl.wire.channel import add_port, new_server
from elasticdl.wire.reserved_ports import KeptPort

# Which ports the kernel may choose for a socket (Linux 6.3); the module `socket` has no name for it yet.
IP_LOCAL_PORT_RANGE = 51


@pytest.fixture
def kept() -> Iterator[KeptPort]:
    with KeptPort() as port:
        yield port


def stranger(port: int, *, again: bool = False) -> socket.socket:
    """A socket that is happy with any port, to which the kernel can give this one only."""
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("I", port << 16 | port))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, again)
    return made


@pytest.mark.parametrize("again", [False, True])
def test_kept_port_is_not_given_to_a_listener(kept: KeptPort, again: bool) -> None:
    with stranger(kept.number, again=again) as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", 0))
        kept.close()
        other.bind(("127.0.0.1", 0))
        assert other.getsockname()[1] == kept.number


def test_kept_port_is_not_given_to_a_connection(kept: KeptPort) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with stranger(kept.number) as other, pytest.raises(OSError, match="Cannot assign"):
            other.connect(server.getsockname())
        kept.close()
        with stranger(kept.number) as other:
            other.connect(server.getsockname())
            assert other.getsockname()[1] == kept.number


def test_kept_port_is_reused_by_successive_servers(kept: KeptPort) -> None:
    for _ in range(3):
        server = new_server("token", threads=1)
        assert add_port(server, f"127.0.0.1:{kept.number}") == kept.number
        server.start()
        another = new_server("token", threads=1)
        with pytest.raises(RuntimeError, match="Failed to bind"):
            add_port(another, f"127.0.0.1:{kept.number}")
        server.stop(None).wait()
        another.stop(None).wait()


def test_port_in_use_cannot_be_kept() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(OSError, match="in use"):
        KeptPort(server.getsockname()[1])


def test_kept_port_that_would_keep_out_its_owner_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: tuple[str, int]) -> socket.socket:
        raise OSError("Address already in use")

    # As the other systems do.
    monkeypatch.setattr(socket, "create_server", refuse)
    with KeptPort() as port, socket.socket() as owner:
        owner.bind(("127.0.0.1", port.number))
