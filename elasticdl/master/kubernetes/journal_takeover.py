"""Decides when a master may write a journal whose lock another master holds. Decisions only, with the clock given.

The lock alone is not enough. A file server keeps that of a lost machine for a minute and a half, or forever; and a pod
whose object is gone may continue to run where the cluster cannot reach it. So two things must hold before a journal is
taken without its lock: the cluster has no such pod any more; and there was no heartbeat in the lock's file for much
longer than a holder leaves between two, as watched from here, by one clock.

A holder that continues after that (its machine was disconnected) reads the lock's file before it writes again, and
stops.
"""

from __future__ import annotations

import time
from pathlib import Path

from elasticdl.master.journal import Holder

BEAT_SECONDS = 5.0
# A container that was in this very pod has ended before this one was started: this is only to be sure.
_SAME_POD_SECONDS = 3 * BEAT_SECONDS
# Three times as long as a holder goes without looking whether the journal is still its own.
_STILL_SECONDS = 60.0


class Handover:
    def __init__(self, uid: str) -> None:
        """`uid`: that of the pod that waits."""
        self._uid = uid
        self._seen: Holder | None = None
        self._since = 0.0

    def may_take(self, holder: Holder | None, *, current: str, now: float) -> bool:
        """To be asked again and again. `current`: the uid of the pod that has the name of the job's master now, as the
        cluster says; `now` by any clock that goes on.
        """
        if holder != self._seen:
            self._seen, self._since = holder, now
        if holder is None or not holder.uid or not self._uid:
            # Written by a version that does not name its holder, or by one that does not know our kind.
            return False
        still = now - self._since
        if holder.uid == self._uid:
            return still >= _SAME_POD_SECONDS
        # There is one of that name at a time: if it is this one, the holder's is gone.
        return current == self._uid and still >= _STILL_SECONDS


def in_words(holder: Holder | None, folder: Path) -> str:
    """Describes the holder of the journal, for the log and the status."""
    if holder is None:
        return f"The journal in {folder} is held by another master, which does not say who it is."
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(holder.since))
    return f"The journal in {folder} is held by another master, pod {holder.pod} (uid {holder.uid}), since {since} UTC."
