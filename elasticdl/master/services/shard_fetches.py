"""The fetcher of each leased shard: a report at the port without a token names only its shard.

It is accepted from the connection that fetched the shard, or from a new one of the same address, which may be the same
program after a reconnection. It is rejected from another address and from the connection of another worker. Programs
that have the token need no port without one: from their first call on it is closed. In memory only: after a restart of
the master it is not known who fetched a shard, and reports are accepted until a call with the token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from elasticdl.master.ledger.ledger import Lease

# More than a job usually has leased at a time. Beyond it, shards that are not leased any more are forgotten.
_KEPT = 1024


class ShardFetches:
    def __init__(self, is_leased: Callable[[int], bool]) -> None:
        self._is_leased = is_leased
        # By lease: the connection.
        self._fetched_by: dict[int, str] = {}
        # By worker: the connection of its last call for a shard without a token.
        self._connections: dict[str, str] = {}
        self._most = _KEPT
        # The programs of the job have called with the token.
        self.has_token = False

    def note_call(self, worker: str, peer: str) -> None:
        """A call for a shard without a token."""
        self._connections[worker] = peer

    def note_fetched(self, leases: Iterable[int], peer: str) -> None:
        """Notes shards that were leased without a token; again, to a call that was repeated over a new connection."""
        for lease in leases:
            fetched_by = self._fetched_by.setdefault(lease, peer)
            # Another address can repeat the call, too.
            if _host(fetched_by) == _host(peer):
                self._fetched_by[lease] = peer
        self._forget()

    def may_report(self, lease: Lease, peer: str) -> bool:
        """Whether a report without a token may come from the worker that has the shard."""
        fetched_by = self._fetched_by.get(lease.lease_id)
        if fetched_by is None or fetched_by == peer:
            return True
        others = {known for worker, known in self._connections.items() if worker != lease.worker}
        return _host(peer) == _host(fetched_by) and peer not in others

    def _forget(self) -> None:
        if len(self._fetched_by) <= self._most:
            return
        self._fetched_by = {lease: peer for lease, peer in self._fetched_by.items() if self._is_leased(lease)}
        self._most = max(_KEPT, 2 * len(self._fetched_by))


def _host(peer: str) -> str:
    """The address of a connection without its port."""
    return peer.rpartition(":")[0]
