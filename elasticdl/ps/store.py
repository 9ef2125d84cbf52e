"""One parameter server's side of all calls: who may ask for what, in which order things happen, when to answer. No I/O.

Buckets: a call is for some buckets. What is for buckets that this server is not the primary of is not carried out, and
the answer says which those are. Who else has to know of a change is told (`replication.py`), before the answer.

Those who call are in modules of their own: workers (`worker_calls.py`), the master (`master_calls.py`), other servers
(`server_calls.py`). What their calls share, and the lock around it, is in `guarded.py`.
"""

from __future__ import annotations

from elasticdl.ps.answers import Initialized, Pulled, Pushed, Pushing, StoreStatus
from elasticdl.ps.holdings import Initial, Push, ServerSettings
from elasticdl.ps.master_calls import MasterCalls
from elasticdl.ps.server_calls import ServerCalls
from elasticdl.ps.worker_calls import WorkerCalls

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
