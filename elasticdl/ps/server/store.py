"""A parameter server without I/O: its state, and the calls on it.

A call names buckets. It is carried out for those that this server is the primary of; the reply names the others, which
the caller then sends to their primaries. Changes are replicated before the reply (`replication/`).

The callers have an object each, over one shared state: workers (`worker_calls.py`), the master (`master_calls.py`) and
other servers (`peer_calls.py`). The state and its lock are in `server_state.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import NamedArrays
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.server.master_calls import MasterCalls
from elasticdl.ps.server.peer_calls import PeerCalls
from elasticdl.ps.server.server_state import ServerState
from elasticdl.ps.server.worker_calls import WorkerCalls
from elasticdl.ps.storage.bucket_store import ServerSettings


class Store:
    """Safe to call from many threads."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        number: int = 0,
        incarnation: str = "",
        failed: Callable[[UserError], None] = lambda error: None,
    ) -> None:
        """`failed` as for `ServerState`."""
        self.number = number
        self.incarnation = incarnation
        self.state = ServerState(settings, number=number, incarnation=incarnation, failed=failed)
        self.workers = WorkerCalls(self.state)
        self.master = MasterCalls(self.state)
        self.peers = PeerCalls(self.state)

    @property
    def generation(self) -> int:
        return self.state.generation

    def close(self, generation: int) -> None:
        """Begins a generation: drops everything, and rejects calls until `open`. Maps are accepted before that."""
        self.state.close(generation)

    def open(
        self,
        restored: NamedArrays | None = None,
        *,
        buckets: Mapping[str, int] | None = None,
        tables: SavedTables | None = None,
    ) -> None:
        """Accepts calls from now on, with restored values or empty. See `ServerState.open`."""
        self.state.open(restored, buckets=buckets, tables=tables)

    def stop(self) -> None:
        """Ends all waiting for other servers: such calls fail from now on."""
        self.state.stop()
