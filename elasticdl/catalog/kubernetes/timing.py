"""Intervals and timeouts of the catalog of a cluster, in one place so that callers and tests can choose others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    # How long to wait for an answer of the API server before `ClusterAway`.
    request_timeout_seconds: float = 15.0
    poll_seconds: float = 0.5
    # While the master of a submitted job starts.
    start_poll_seconds: float = 0.2
    # While a job runs to its end.
    status_poll_seconds: float = 1.0
    # How long a running master may take to act on a new desired state.
    answer_timeout_seconds: float = 30.0
    # A master whose pod is unschedulable may wait for hours; the job is submitted all the same.
    start_timeout_seconds: float = 60.0
    # A volume that is not there at once may be there in a moment. After this time, events of the pod are looked up.
    events_after_seconds: float = 8.0
    # How long the objects of a deleted job of the same name may take to disappear, in addition to the grace of a pod.
    leftover_timeout_seconds: float = 60.0
    # Deletion of pods: after this time the observer gets a note.
    deletion_note_seconds: float = 5.0
    # In addition to the grace of the pods: what is there after this time is held by a finalizer, for example.
    deletion_timeout_seconds: float = 60.0
    # After the end of a job, a log that has been silent for this time is complete, or its machine is lost.
    log_drain_seconds: float = 10.0
    # A log that is not followed comes at once, or its machine does not answer.
    log_read_seconds: float = 30.0


DEFAULT = Timing()
