"""Messages that arrive twice, the second time late: pushes over another connection, and calls to the master.

As when a call is given up, made again, and its first packets arrive after all.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from typing import Any

import grpc

from elasticdl.ps.protocol import call_codec
from elasticdl.wire.channel import read_token
from elasticdl.wire.frames import Connection, connect
from elasticdl.wire.security import NotTrusted
from elasticdl.worker.master_link import MasterLink

_KEPT = 50
_CALL_SECONDS = 10.0


def replay(dice: random.Random, chance: float) -> None:
    """From now on this process sends some of its messages again."""
    _replay_pushes(dice, chance)
    _replay_master_calls(dice, chance)


def _replay_pushes(dice: random.Random, chance: float) -> None:
    send = Connection.send
    sent: list[tuple[str, bytes, list[bytes]]] = []
    is_replaying = False

    def send_and_replay(self: Connection, kind: int, head: bytes = b"", body: Any = (), **more: Any) -> None:
        nonlocal is_replaying
        send(self, kind, head, body, **more)
        if kind != call_codec.PUSH or is_replaying:
            return
        host, port = self._socket.getpeername()[:2]
        sent.append((f"{host}:{port}", bytes(head), [bytes(part) for part in body]))
        del sent[:-_KEPT]
        if dice.random() < chance:
            is_replaying = True
            try:
                _send_again(*dice.choice(sent))
            finally:
                is_replaying = False

    Connection.send = send_and_replay  # type: ignore[method-assign]


def _send_again(address: str, head: bytes, body: list[bytes]) -> None:
    # A server that is gone or suspended gets nothing twice.
    with contextlib.suppress(OSError, NotTrusted):
        connection = connect(address, read_token(os.environ["ELASTICDL_TOKEN_FILE"]))
        connection._socket.settimeout(_CALL_SECONDS)
        try:
            connection.send(call_codec.PUSH, head, [memoryview(part) for part in body])
            connection.receive()
        finally:
            connection.close()


def _replay_master_calls(dice: random.Random, chance: float) -> None:
    call = MasterLink.call
    made: list[tuple[Callable[..., Any], bytes, Any]] = []

    def call_and_replay(self: MasterLink, method: Callable[..., Any], request: Any) -> Any:
        reply = call(self, method, request)
        made.append((method, request.SerializeToString(), type(request)))
        del made[:-_KEPT]
        if dice.random() < chance:
            again, data, kind = dice.choice(made)
            # It may be refused.
            with contextlib.suppress(grpc.RpcError):
                again(kind.FromString(data), timeout=_CALL_SECONDS)
        return reply

    MasterLink.call = call_and_replay  # type: ignore[method-assign]
