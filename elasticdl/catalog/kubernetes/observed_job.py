"""The state of a job on a cluster, derived from its job record and from the pod of its master. Pure.

A master has started when it has written its first status into the record. Before that, no master can act on a desired
state: its pod waits, or its container exits and is restarted repeatedly (the pod's phase is Running meanwhile). A
master whose machine is unreachable keeps its pod, which appears to run, for minutes: the job counts as interrupted all
the same. A running master that has not written for longer than any master pauses is stalled or cannot write any more,
for example because its credentials are rejected. Only its log shows which.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property

from elasticdl.jobs.desired import Desired, DesiredError
from elasticdl.jobs.job_record import JobRecord
from elasticdl.jobs.status import JobStatus, RunState, StatusError
from elasticdl.platforms.kubernetes.client import Document
from elasticdl.platforms.kubernetes.manifests import SIGN_OF_LIFE_SECONDS, WRITTEN_AT
from elasticdl.platforms.kubernetes.pods.status import (
    last_end,
    leaving,
    machine_of,
    node_status,
    running_since,
    unreachable,
)
from elasticdl.platforms.platform import NodePhase

_ENDED_PHASES = ("Succeeded", "Failed")
# Two heartbeats missed, and some time for a write that is rejected or conflicts with another.
_HEARTBEAT_TIMEOUT_SECONDS = 2 * SIGN_OF_LIFE_SECONDS + 60.0


@dataclass(frozen=True, kw_only=True)
class ObservedJob:
    """`document`: the job record as the cluster has it. `master`: the pod, if there is one. `now`: by the clock of
    the API server, None if unknown. `parsed`: the status in the record, where it has been read already.
    """

    name: str
    document: Document
    master: Document | None
    now: float | None = None
    parsed: JobStatus | None = None

    @cached_property
    def record(self) -> JobRecord:
        return JobRecord.of(self.document.get("data"))

    @cached_property
    def reported(self) -> JobStatus:
        """The last status that the master has written. Raises `StatusError`."""
        return self.record.status() if self.parsed is None else self.parsed

    @property
    def state(self) -> RunState:
        """Returns the reported state; a job that is not over and has no master is interrupted. Raises `StatusError`."""
        reported = self.reported.state
        return reported if reported.is_final or self._has_master else RunState.INTERRUPTED

    @property
    def status(self) -> JobStatus:
        """The reported status with what is known from outside. Raises `StatusError`."""
        return replace(
            self.reported,
            job=self.name,
            kind=self.reported.kind or self.record.kind,
            state=self.state,
            trouble=f"The master: {self.trouble}." if self.trouble else "",
        )

    @property
    def has_started(self) -> bool:
        """A master has reported at least once."""
        return self.record.has_status

    @property
    def never_started(self) -> bool:
        """There is a pod for the master, but it waits, or does nothing but exit."""
        if self.master is None or self.has_started:
            return False
        return _phase(self.master) == "Pending" or bool(last_end(self.master))

    @property
    def trouble(self) -> str:
        """Returns the problem of the master; empty if there is none, or the job is over. Raises `StatusError`."""
        if self.reported.state.is_final:
            return ""
        if self.master is None:
            return "its pod is gone"
        if unreachable(self.master):
            return f"{machine_of(self.master)}, its machine, does not answer"
        if leaving(self.master):
            return "its pod is being deleted"
        # A master that runs again is all right, whatever it crashed of before.
        if node_status(self.master).phase is NodePhase.RUNNING and self.has_started:
            return self._missed_heartbeats(self.master)
        if end := last_end(self.master):
            return f"it has ended ({end})"
        return node_status(self.master).message

    @property
    def is_removable(self) -> bool:
        """Whether nothing of the job runs; or a stop is desired, and the master is not able to act on it."""
        try:
            if not self.state.is_active or self.never_started:
                return True
            return bool(self.unobserved_desired.stop and self.trouble)
        except StatusError:
            # A status that cannot be read is no reason to keep a job without a master.
            return not self._has_master

    @property
    def unobserved_desired(self) -> Desired:
        """The desired state that the master has not acted on yet; an empty one if there is none, or if what users
        have written there cannot be read.
        """
        try:
            return self.record.unobserved_desired()
        except DesiredError:
            return Desired(generation=self.reported.observed_generation)

    @property
    def _has_master(self) -> bool:
        pod = self.master
        return not (pod is None or leaving(pod) or unreachable(pod) or _phase(pod) in _ENDED_PHASES)

    def _missed_heartbeats(self, master: Document) -> str:
        """A master that was just restarted has had no time to write."""
        written = self._written_at
        if written is None or self.now is None:
            return ""
        if self.now - max(written, running_since(master)) <= _HEARTBEAT_TIMEOUT_SECONDS:
            return ""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(written))
        return f"it has written nothing since {moment}; its log may tell why"

    @property
    def _written_at(self) -> float | None:
        """Returns the time of the last write by the API server's clock: that of the master's machine may be wrong."""
        try:
            return float((self.document["metadata"].get("annotations") or {})[WRITTEN_AT])
        except (KeyError, ValueError):
            return None


def _phase(pod: Document) -> str:
    return str((pod.get("status") or {}).get("phase") or "")
