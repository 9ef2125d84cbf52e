"""One parameter server's side of all calls: who may ask for what, in which order things happen, when to answer. No I/O.

Buckets: a call is for some buckets. What is for buckets that this server is not the primary of is not carried out, and
the answer says which those are. Who else has to know of a change is told (`replica_log.py`), before the answer.

Those who call are in modules of their own: workers (`worker_calls.py`), the master (`master_calls.py`), other servers
(`peer_calls.py`). What their calls share, and the lock around it, is in `guarded_store.py`.
"""

from __future__ import annotations

from elasticdl.ps.protocol.answers import Initialized, Pulled, Pushed, Pushing, StoreStatus
from elasticdl.ps.server.master_calls import MasterCalls
from elasticdl.ps.server.peer_calls import ServerCalls
from elasticdl.ps.server.worker_calls import WorkerCalls
from elasticdl.ps.storage.holdings import Initial, Push, ServerSettings

__all__ = [
    "Initial",
    "Initialized",
    "Pulled",
    "Push",
    "Pushed",
    "Pushing",
    "ServerSettings",
    "Store",
    "StoreStatus",
]


class Store(WorkerCalls, MasterCalls, ServerCalls):
    """Safe to call from many threads."""
