"""How a job on a cluster is, by its record and by the pod of its master: pure functions of the two documents.

A master has come up when it has written its first status into the record. Until then nobody is there who could obey, be
it that the pod waits, or that its container ends and is started again for ever (the pod's phase is Running meanwhile).
A master whose machine does not answer keeps its pod, running by the look of it, for minutes: the job is interrupted all
the same. One that runs, and has not written for longer than a master ever is silent, hangs, or may not write any more:
the cluster does not accept its credentials, say. Only its log can tell which.
"""

from __future__ import annotations

import json
import time
from typing import Any

from elasticdl.master.ledger.audit_rows import unrolled
from elasticdl.platforms.kubernetes.client import Document
from elasticdl.platforms.kubernetes.manifests import (
    NO_WISHES,
    SIGN_OF_LIFE_SECONDS,
    STATUS_KEY,
    WISHES_KEY,
    WRITTEN_AT,
)
from elasticdl.platforms.kubernetes.pods.status import (
    last_end,
    leaving,
    machine_of,
    node_status,
    running_since,
    unreachable,
)
from elasticdl.platforms.platform import NodePhase

FINAL = ("succeeded", "failed", "stopped")
_ENDED = ("Succeeded", "Failed")
# A master that has missed two of its signs of life. Some time for a write that is refused, or meets another.
_SILENT_SECONDS = 2 * SIGN_OF_LIFE_SECONDS + 60.0


def status_of(record: Document) -> dict[str, Any]:
    """What the master has said of the job last; nothing before its first word."""
    document = json.loads(record.get("data", {}).get(STATUS_KEY) or "{}")
    assert isinstance(document, dict)
    if document.get("audit"):
        document["audit"] = unrolled(document["audit"])
    return document


def state_of(record: Document, master: Document | None) -> str:
    """As the record says; a job that is not over and has no master is interrupted."""
    said = str(status_of(record).get("state") or "starting")
    if said in FINAL:
        return said
    if master is None or leaving(master) or unreachable(master) or _phase(master) in _ENDED:
        return "interrupted"
    return said


def is_running(state: str) -> bool:
    return state not in (*FINAL, "interrupted")


def trouble_of(record: Document, master: Document | None, now: float | None) -> str:
    """What keeps the master from its work. Nothing where all is well, or all is over. `now`: by the cluster's clock."""
    if status_of(record).get("state") in FINAL:
        return ""
    if master is None:
        return "its pod is gone"
    if unreachable(master):
        return f"{machine_of(master)}, its machine, does not answer"
    if leaving(master):
        return "its pod is being deleted"
    # One that is up again is all right, whatever it was that it ended of.
    if _runs(master) and came_up(record):
        return _silence(record, master, now)
    if end := last_end(master):
        return f"it has ended ({end})"
    return node_status(master).message


def _silence(record: Document, master: Document, now: float | None) -> str:
    """Of one that has just been started again, the one before it wrote last."""
    written = _written_at(record)
    if written is None or now is None or now - max(written, running_since(master)) <= _SILENT_SECONDS:
        return ""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(written))
    return f"it has written nothing since {moment}; its log may tell why"


def _written_at(record: Document) -> float | None:
    """When its master has last, by the cluster's clock; that of the master's own machine may be wrong."""
    try:
        return float((record["metadata"].get("annotations") or {})[WRITTEN_AT])
    except (KeyError, ValueError):
        return None


def came_up(record: Document) -> bool:
    """Whether there has ever been a master that could obey."""
    return STATUS_KEY in record.get("data", {})


def never_began(record: Document, master: Document | None) -> bool:
    """There is a pod for the master, but it waits, or does nothing but end."""
    if master is None or came_up(record):
        return False
    return _phase(master) == "Pending" or bool(last_end(master))


def unheard_wish(record: Document) -> dict[str, Any]:
    """The last wish, if no master has said yet what has become of it."""
    try:
        wish = json.loads(record.get("data", {}).get(WISHES_KEY) or NO_WISHES)
    except ValueError:
        return {}
    # People may write there, too.
    return wish if isinstance(wish, dict) and not heard(record, str(wish.get("id", ""))) else {}


def heard(record: Document, number: str) -> bool:
    """Whether a master has said what becomes of the wish of that number."""
    return (status_of(record).get("wish") or {}).get("id") == number


def removable(record: Document, master: Document | None, now: float | None) -> bool:
    """Nothing of the job runs; or there is nobody who could stop it, though that was wished."""
    if not is_running(state_of(record, master)) or never_began(record, master):
        return True
    return bool(unheard_wish(record).get("stop") and trouble_of(record, master, now))


def _phase(pod: Document) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _runs(pod: Document) -> bool:
    return node_status(pod).phase is NodePhase.RUNNING
