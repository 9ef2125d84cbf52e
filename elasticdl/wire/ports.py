"""Ports of this machine that stay a job's own while nobody listens there: between the end of a master and its next
start, no other program is given them, neither to listen nor for a connection to somebody else.
"""

from __future__ import annotations

import socket
import sys
from types import TracebackType


class KeptPort:
    """A port of 127.0.0.1, from now on until `close`; 0 for any. `OSError`: somebody listens there.

    It can be listened at by whoever asks for this very port and allows its address to be used again (SO_REUSEADDR),
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
        if sys.platform != "linux":
            # Elsewhere a bound socket keeps out everybody. The port is then known, and free unless bad luck has it.
            self._held.close()

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> KeptPort:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
