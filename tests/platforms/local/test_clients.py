"""Whatever a client does to its connection, the nodes and the other clients do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import elasticdl
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.local_platform import LocalPlatform
from elasticdl.platforms.local.messages import LONGEST_LINE, Refused, Watch, decode, encode
from elasticdl.platforms.platform import NodePhase, NodeRequest


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], socket.socket]:
    def make() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        client.connect(str(tmp_path / "socket"))
        return client

    return make


def hear_all(client: socket.socket) -> bytes:
    heard = b""
    while data := client.recv(65536):
        heard += data
    return heard


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x80\x04\x95\n", b"{}\n", b"\n"])
def test_nonsense_is_refused_and_cut_off(
    host: Host, node: Callable[..., NodeRequest], connect: Callable[[], socket.socket], noise: bytes
) -> None:
    with connect() as client:
        client.sendall(noise)
        assert isinstance(decode(hear_all(client).split(b"\n")[0]), Refused)
    assert host.spawn(node("worker-0", "sleep", "1000")).phase is NodePhase.RUNNING


def test_a_line_without_end_is_cut_off(
    host: Host, node: Callable[..., NodeRequest], connect: Callable[[], socket.socket]
) -> None:
    with connect() as client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sent = 0
        while True:
            client.sendall(b"x" * 65536)
            sent += 65536
            assert sent <= 2 * LONGEST_LINE
    assert host.spawn(node("worker-0", "sleep", "1000")).phase is NodePhase.RUNNING


def test_a_client_that_leaves_while_it_watches(
    host: Host, node: Callable[..., NodeRequest], connect: Callable[[], socket.socket]
) -> None:
    for number in range(10):
        with connect() as client:
            client.sendall(encode(Watch(id=1)))
            host.spawn(node(f"before-{number}", "sleep", "1000"))
            assert client.recv(1)
        host.spawn(node(f"after-{number}", "true"))
        assert host.wait(f"after-{number}", 60).phase is NodePhase.SUCCEEDED


def test_client_that_never_reads_does_not_block_host(
    host: Host, node: Callable[..., NodeRequest], connect: Callable[[], socket.socket]
) -> None:
    with connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        client.sendall(encode(Watch(id=1)))
        for number in range(100):
            host.spawn(node(f"worker-{number}", "no-such-command" + "x" * 4000))
        assert len(host.statuses()) == 100
        client.setblocking(True)
        heard = b""
        while heard.count(b"\n") < 100:
            heard += client.recv(65536)


def test_a_message_may_come_in_pieces(host: Host, connect: Callable[[], socket.socket]) -> None:
    with connect() as client:
        for byte in b'{"kind": "list", "id": 12}\n':
            client.sendall(bytes([byte]))
        assert client.recv(65536) == b'{"kind": "nodes", "id": 12, "nodes": []}\n'


def test_a_master_that_was_killed_finds_its_nodes_again(
    host: Host,
    node: Callable[..., NodeRequest],
    eventually: Callable[[Callable[[], object]], None],
    tmp_path: Path,
) -> None:
    program = f"""
import asyncio
from pathlib import Path
from elasticdl.platforms.local.local_platform import LocalPlatform
from elasticdl.platforms.platform import NodeRequest
async def main():
    platform = LocalPlatform(Path({str(tmp_path / "socket")!r}))
    await platform.start(NodeRequest(name="worker-0", role="worker", command=("sleep", "1000")))
    await platform.start(NodeRequest(name="worker-1", role="worker", command=("sleep", "1000")))
    async for status in platform.events():
        print(status.name, flush=True)
asyncio.run(main())
"""
    root = str(Path(elasticdl.__file__).parents[1])
    host.spawn(node("master", sys.executable, "-c", program, role="master", PYTHONPATH=root))
    eventually(lambda: host.tail("master") == ["worker-0", "worker-1"])
    host.terminate("master", 0)
    host.wait("master", 60)
    subprocess.run(["kill", "-9", str(host.pid("worker-1"))], check=True)
    host.wait("worker-1", 60)

    async def listed() -> tuple[dict[str, NodePhase], dict[str, NodePhase]]:
        platform = LocalPlatform(tmp_path / "socket")
        nodes = {status.name: status.phase for status in await platform.nodes()}
        first = {}
        async for status in platform.events():
            first[status.name] = status.phase
            if len(first) == len(nodes):
                break
        await platform.close()
        return nodes, first

    nodes, first = asyncio.run(listed())
    assert nodes == first == {"worker-0": NodePhase.RUNNING, "worker-1": NodePhase.FAILED}
