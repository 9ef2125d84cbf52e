"""Ports of this machine that stay reserved for a job while nothing listens there: between the end of a master and its
next start, the kernel gives them to no other program, neither to listen nor as the source port of a connection.
"""

from __future__ import annotations

import socket
from types import TracebackType


class KeptPort:
    """Reserves a port of 127.0.0.1 until `close`; 0 for any. Raises OSError if the port is in use.

    A server can listen there if it asks for this very port and allows its address to be used again (SO_REUSEADDR),
    as gRPC's servers and ours do: one at a time.
    """

    def __init__(self, port: int = 0) -> None:
        self._held = socket.socket()
        try:
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.bind(("127.0.0.1", port))
        except BaseException:
            self._held.close()
            raise
        self.number: int = self._held.getsockname()[1]
        try:
            socket.create_server(("127.0.0.1", self.number)).close()
        except OSError:
            # Not Linux: there a socket that is only bound blocks its owner too. The port is known now, and it takes
            # bad luck that another program has it when it is needed.
            self._held.close()

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> KeptPort:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
