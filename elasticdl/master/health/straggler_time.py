"""Counts the time that workers have waited for slower ones: at barriers, and at the end of an epoch without a shard.

Counted in seconds of the job: while one of four workers waits, a second counts as a quarter. Sampled with the checks of
the failure detector, so that it costs nothing beside them; waits shorter than a check are right on average.

Failure modes
    A master that was suspended has not looked meanwhile: of a long gap, only `most_seconds` count. A new master
    continues from the last status that was written (`seconds`), so a killed one loses a few seconds of the account.
"""

from __future__ import annotations

from elasticdl.master.health.job_view import JobView, NodeView

_WORKER = "worker"
_MOST_SECONDS = 10.0


class StragglerTime:
    def __init__(self, *, seconds: float = 0.0, most_seconds: float = _MOST_SECONDS) -> None:
        self.seconds = seconds
        self._most_seconds = most_seconds
        self._share = 0.0
        self._at: float | None = None

    def observe(self, view: JobView, now: float) -> None:
        if self._at is not None:
            self.seconds += self._share * min(max(now - self._at, 0.0), self._most_seconds)
        self._at = now
        self._share = waiting_share(view)


def waiting_share(view: JobView) -> float:
    """Returns the share of the workers that wait while others work; 0 if all wait, for that is no one's slowness."""
    workers = [
        node
        for node in view.nodes
        if node.role == _WORKER and node.is_running and node.has_joined and not node.is_leaving
    ]
    waiting = sum(_is_waiting(node) for node in workers)
    working = sum(bool(node.shards) and not _is_waiting(node) for node in workers)
    return waiting / (waiting + working) if working else 0.0


def _is_waiting(node: NodeView) -> bool:
    return node.is_at_barrier or node.is_without_work
