"""The outcome of a job: its result, the reason for it, a requested stop, and the number of resumptions after an end."""

from __future__ import annotations

from typing import Any

from elasticdl.master.lifecycle.roster import JobFailure


class JobOutcome:
    """`result` is empty while the job runs; then "succeeded", "failed" or "stopped"."""

    def __init__(self) -> None:
        self.result = ""
        self.message = ""
        self.traceback = ""
        # The newest error of a node, whether the job survives it or not.
        self.last_error = ""
        # Not empty: the job saves a checkpoint and ends.
        self.stop_reason = ""
        # How many times the job has been started: 1, and one more for each time it was resumed.
        self.attempt = 1

    def finish(self, result: str) -> None:
        self.result = result

    def fail(self, failure: JobFailure, detail: str) -> None:
        """The first failure is the reported one."""
        if not self.result:
            self.result = "failed"
            self.message = failure.message
            self.traceback = detail

    def stop(self, reason: str) -> None:
        self.stop_reason = self.stop_reason or reason

    def reopen(self, attempt: int) -> None:
        """The job is resumed: how the attempt before ended does not count any more."""
        self.attempt = attempt
        self.result = self.message = self.traceback = self.last_error = self.stop_reason = ""

    def note_error(self, error: str) -> None:
        self.last_error = error

    def snapshot(self) -> dict[str, Any]:
        return {
            "outcome": self.result,
            "message": self.message,
            "traceback": self.traceback,
            "last_error": self.last_error,
            "stopping": self.stop_reason,
            "attempt": self.attempt,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.result = snapshot["outcome"]
        self.message = snapshot["message"]
        self.traceback = snapshot["traceback"]
        self.last_error = snapshot["last_error"]
        self.stop_reason = snapshot["stopping"]
        # Journals from before jobs could be resumed do not have it.
        self.attempt = snapshot.get("attempt", 1)
