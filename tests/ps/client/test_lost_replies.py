"""A connection that breaks after a server has applied a push, and before it could say so, costs nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")


class Proxy:
    """Between a client and a server: forwards everything, until the test makes it drop the server's next reply."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.losses = 0
        self._lose = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_reply_when(self, applied: threading.Event) -> None:
        self._applied = applied
        self._lose.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._open += [client, server]
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, from_server: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if from_server and self._lose.is_set() and self._applied.is_set():
                    # The server has applied the call. Its reply is lost.
                    self._lose.clear()
                    self.losses += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._listener.close()
        for one in self._open:
            one.close()


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    made: list[Proxy] = []
    yield made
    for proxy in made:
        proxy.close()


def test_every_batch_counts_once(start_servers: Any, proxies: list[Proxy]) -> None:
    servers = start_servers(2)
    proxies += [Proxy(address) for address in servers.addresses]
    client = servers.client(addresses=[proxy.address for proxy in proxies])
    client.initialize({"a": np.zeros(300, np.float32), "b": np.zeros(300, np.float32)}, {}, SGD)
    for batch in range(1, 13):
        unlucky = batch % 2
        applied = threading.Event()
        push = servers.stores[unlucky].workers.push

        def tell(given: Any, push: Any = push, applied: threading.Event = applied, **message: Any) -> Any:
            reply = push(given, **message)
            applied.set()
            return reply

        servers.stores[unlucky].workers.push = tell
        proxies[unlucky].lose_next_reply_when(applied)
        gradients = {name: np.full(300, batch, np.float32) for name in ("a", "b")}
        reached = client.push(gradients, learning_rate=1.0)
        servers.stores[unlucky].workers.push = push
        assert reached == batch
    assert [proxy.losses for proxy in proxies] == [6, 6]
    assert [store.master.status().pushes for store in servers.stores] == [12, 12]
    for value in client.pull().trainable.values():
        np.testing.assert_array_equal(value, np.full(300, -sum(range(1, 13))))


def test_initial_values_too(start_servers: Any, proxies: list[Proxy]) -> None:
    """Here the repetition may find that it comes second: what it said before has been taken."""
    servers = start_servers(1)
    proxies.append(Proxy(servers.addresses[0]))
    client = servers.client(addresses=[proxies[0].address])
    client.pull()
    applied = threading.Event()
    initialize = servers.stores[0].workers.initialize

    def tell(initial: Any, **given: Any) -> Any:
        reply = initialize(initial, **given)
        applied.set()
        return reply

    servers.stores[0].workers.initialize = tell
    proxies[0].lose_next_reply_when(applied)
    client.initialize({"a": np.arange(5, dtype=np.float32)}, {}, SGD)
    assert proxies[0].losses == 1
    np.testing.assert_array_equal(client.pull().trainable["a"], np.arange(5))
