"""The failure detector: decides from heartbeats, progress and probes which nodes have failed without exiting.

The platform reports processes that end. This is for those that do not: a process that hangs, one on a machine that
cannot be reached, or one that never got going is still running for the platform, and the job would wait for it
indefinitely.

A plain state machine without a clock of its own: events come in with their time, `check` is called every second, and
decisions come out (`decisions.py`). It has no effects; the caller reports with `acted_on` what it has done. Nothing
here is journaled: a master that recovers starts with fresh timers, which gives a failed node a little more time.

Rules, by `FailureKind`
    STALLED: a worker holds shards and has reported no progress for much longer than a batch takes. While it waits in a
    call for a shard, the reply with its leases was lost: they are requeued, and the worker lives. A worker that waits
    at a barrier is not stalled.
    UNRESPONSIVE: a worker has joined and its directive stream, which gRPC keeps alive with pings, is closed. It counts
    without shards, too: the end of an epoch may wait for it.
    FAILED_BUT_RUNNING: a worker has reported its own error and does not exit. Its shards are its own until it does.
    NEVER_REPORTED: a program has asked for no data long after its start, while others have.
    NEVER_JOINED: a node of ours has not joined long after its start.
    SERVER_UNRESPONSIVE: a parameter server does not answer probes.
    STRAGGLER: the other members of an all-reduce step wait for a worker that reports nothing.

Failure modes
    The master is suspended: it has received no heartbeats meanwhile, so connection and start timers begin again, and a
    server is probed again before it is given up. A parameter server is lost or unresponsive: workers wait for it, so
    their stall timers begin again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from elasticdl.master.health.decisions import Action, Decision, FailureKind
from elasticdl.master.health.job_view import JobView, NodeView
from elasticdl.master.health.timeouts import Timeouts

_TRAINER_ROLES = ("chief", "worker")


class FailureDetector:
    """Owns all timers of all nodes. Times are seconds of any one monotonic clock."""

    def __init__(self, timeouts: Timeouts, *, now: float) -> None:
        self.timeouts = timeouts
        self._checked_at = now
        self._started_at: dict[str, float] = {}
        self._ended: set[str] = set()
        # Open directive streams of each node, the nodes that ever had one, and since when the others have none.
        self._streams: Counter[str] = Counter()
        self._connected_once: set[str] = set()
        self._disconnected_at: dict[str, float] = {}
        self._progress_at: dict[str, float] = {}
        self._batch_seconds: dict[str, float] = {}
        self._progressed: set[str] = set()
        # Programs that have made a call, and when the first of them did.
        self._reported: set[str] = set()
        self._first_report_at = float("inf")
        self._failed_at: dict[str, float] = {}
        # Servers that did not answer the last probe, and when they first did not.
        self._unanswered_since: dict[str, float] = {}

    # -- events ----------------------------------------------------------------------------------------------

    def node_started(self, node: str, now: float) -> None:
        self._started_at[node] = now

    def node_ended(self, node: str) -> None:
        """The platform has reported the end of its process."""
        self._ended.add(node)
        self._connected_once.discard(node)
        for timers in (self._started_at, self._disconnected_at):
            timers.pop(node, None)

    def stream_opened(self, node: str) -> None:
        """A node follows its directives; gRPC closes the stream of one that does not answer pings."""
        self._streams[node] += 1
        self._connected_once.add(node)
        self._disconnected_at.pop(node, None)

    def stream_closed(self, node: str, now: float) -> None:
        self._streams[node] -= 1
        if not self._streams[node]:
            del self._streams[node]
            if node not in self._ended:
                self._disconnected_at[node] = now

    def program_reported(self, worker: str, now: float) -> None:
        """A program has made a call."""
        self._reported.add(worker)
        self._first_report_at = min(self._first_report_at, now)

    def lease_granted(self, worker: str, now: float) -> None:
        """Starts the stall timer of a worker, which had no work until now."""
        self._progress_at[worker] = now

    def progress_reported(
        self, worker: str, now: float, *, batch_seconds: float = 0.0, batches: int = 0
    ) -> None:
        """`batch_seconds` is measured by the worker, or else derived from the `batches` since its last report."""
        self._progressed.add(worker)
        before = self._progress_at.get(worker)
        if batches and before is not None:
            batch_seconds = (now - before) / batches
        if batch_seconds > 0:
            self._batch_seconds[worker] = batch_seconds
        self._progress_at[worker] = now

    def restart_stall_timers(self) -> None:
        """All workers have waited for something else: a barrier, or a parameter server."""
        self._progress_at.clear()

    def servers_probed(
        self, answered: Mapping[str, bool], now: float, *, replaceable: bool
    ) -> list[Decision]:
        """Takes the result of one probe of all servers, and decides on those that did not answer.

        Only here, never between probes: a master that was suspended probes once more before it decides.
        `replaceable`: the model survives the loss of all that did not answer.
        """
        self._unanswered_since = {
            name: self._unanswered_since.get(name, now) for name, heard in answered.items() if not heard
        }
        if not self._unanswered_since:
            return []
        self.restart_stall_timers()
        timeout = self.timeouts.server_seconds(replaceable=replaceable)
        return [
            _decide(name, FailureKind.SERVER_UNRESPONSIVE, since, timeout, Action.KILL)
            for name, since in self._unanswered_since.items()
            if now - since >= timeout
        ]

    def acted_on(self, decision: Decision, now: float) -> None:
        """Restarts the timers of the node: if it is still there later, it is decided upon again.

        A program that has never reported is killed once; its replacement is another node.
        """
        node = decision.node
        if decision.kind is FailureKind.SERVER_UNRESPONSIVE:
            self._unanswered_since.pop(node, None)
        elif decision.kind is FailureKind.NEVER_JOINED:
            self._started_at[node] = now
        elif decision.kind is FailureKind.NEVER_REPORTED:
            self._reported.add(node)
        elif decision.kind is not FailureKind.STRAGGLER:
            self._progress_at.pop(node, None)
            self._failed_at.pop(node, None)
            if node in self._disconnected_at:
                self._disconnected_at[node] = now

    # -- decisions -------------------------------------------------------------------------------------------

    def check(self, job: JobView, now: float) -> list[Decision]:
        """Applies all rules; to be called every second. At most one decision for each node."""
        if now - self._checked_at > self.timeouts.master_pause_seconds and not self.timeouts.runs_programs:
            self._started_at.clear()
            self._disconnected_at.clear()
        self._checked_at = now
        decisions: dict[str, Decision] = {}
        for rule in (
            self._stalled,
            self._unresponsive,
            self._failed_but_running,
            self._never_reported,
            self._never_joined,
            self._reports,
        ):
            for decision in rule(job, now):
                decisions.setdefault(decision.node, decision)
        return list(decisions.values())

    def check_straggler(self, worker: str, now: float, *, timeout_seconds: float) -> Decision | None:
        """Others wait for this worker. Returns None if it has reported progress within the timeout."""
        last = self._progress_at.get(worker)
        if last is not None and now - last <= timeout_seconds:
            return None
        since = now - timeout_seconds if last is None else last
        return _decide(worker, FailureKind.STRAGGLER, since, timeout_seconds, Action.KILL)

    def is_connected(self, node: str) -> bool:
        """Whether the node has an open directive stream."""
        return bool(self._streams[node])

    def has_progressed(self, worker: str) -> bool:
        return worker in self._progressed

    # -- rules -----------------------------------------------------------------------------------------------

    def _stalled(self, job: JobView, now: float) -> Iterator[Decision]:
        if not self.timeouts.detects_stalls:
            return
        timeout = self.timeouts.stall_seconds(self._batch_seconds.values())
        if not self._batch_seconds:
            # Before the first batch is done, no one knows how long one takes; it may compile. Programs may report
            # whole shards.
            if self.timeouts.runs_programs:
                return
            timeout = max(timeout, self.timeouts.start_seconds)
        for node in _trainers(job):
            if node.is_at_barrier or not node.shards:
                continue
            since = self._progress_at.setdefault(node.name, now)
            if now - since > timeout:
                # It would stall again where it did: its replacements are limited, like those of failed ones.
                action = Action.REQUEUE_SHARDS if node.waits_for_shard else Action.FAIL
                yield _decide(node.name, FailureKind.STALLED, since, timeout, action)

    def _unresponsive(self, job: JobView, now: float) -> Iterator[Decision]:
        if not self.timeouts.detects_stalls:
            return
        timeout = self.timeouts.stall_seconds(self._batch_seconds.values())
        timeout *= 1.0 if self._streams else self.timeouts.all_unresponsive_factor
        # A worker that has never had a stream has just joined, or knows only the previous master.
        first_timeout = max(timeout, self.timeouts.start_seconds)
        for name, since in self._disconnected(job, now).items():
            limit = timeout if name in self._connected_once else first_timeout
            if now - since > limit:
                yield _decide(name, FailureKind.UNRESPONSIVE, since, limit, Action.KILL)

    def _failed_but_running(self, job: JobView, now: float) -> Iterator[Decision]:
        failed = job.failed - self._ended
        self._failed_at = {worker: self._failed_at.get(worker, now) for worker in sorted(failed)}
        timeout = self.timeouts.exit_seconds
        for worker, since in self._failed_at.items():
            if now - since > timeout:
                yield _decide(worker, FailureKind.FAILED_BUT_RUNNING, since, timeout, Action.KILL)

    def _never_reported(self, job: JobView, now: float) -> Iterator[Decision]:
        timeout = self.timeouts.start_seconds
        # Where all need long to get ready, the later ones may need a little longer than the first.
        if not job.has_announced_data or not now - self._first_report_at > timeout:
            return
        for node in _trainers(job):
            if node.name in self._reported or not node.is_running:
                continue
            since = self._started_at.setdefault(node.name, now)
            if now - since > timeout:
                yield _decide(node.name, FailureKind.NEVER_REPORTED, since, timeout, Action.FAIL)

    def _never_joined(self, job: JobView, now: float) -> Iterator[Decision]:
        timeout = self.timeouts.start_seconds
        for name, since in self._unjoined(job, now).items():
            if now - since > timeout:
                yield _decide(name, FailureKind.NEVER_JOINED, since, timeout, Action.FAIL)

    def _reports(self, job: JobView, now: float) -> Iterator[Decision]:
        """Nodes that the job may be waiting for, long before their timeout."""
        timeouts = self.timeouts
        at_least = timeouts.stall_floor_seconds if timeouts.detects_stalls else float("inf")
        waiting = (
            (self._unjoined(job, now), FailureKind.NEVER_JOINED, timeouts.start_seconds),
            (
                self._unanswered_since,
                FailureKind.SERVER_UNRESPONSIVE,
                timeouts.server_seconds(replaceable=False),
            ),
            (self._disconnected(job, now), FailureKind.UNRESPONSIVE, at_least),
        )
        for nodes, kind, timeout in waiting:
            for name, since in nodes.items():
                if now - since >= timeouts.report_seconds:
                    yield _decide(name, kind, since, timeout, Action.REPORT)

    def _unjoined(self, job: JobView, now: float) -> dict[str, float]:
        """Running nodes of ours that have not joined, and since when. Programs join no one."""
        if self.timeouts.runs_programs:
            return {}
        nodes = [n.name for n in job.nodes if n.is_running and not n.has_joined and not n.is_leaving]
        return {name: self._started_at.setdefault(name, now) for name in nodes}

    def _disconnected(self, job: JobView, now: float) -> dict[str, float]:
        """Workers of ours that have joined and have no directive stream, and since when."""
        if self.timeouts.runs_programs:
            return {}
        workers = [
            n.name
            for n in job.nodes
            if n.role == "worker" and n.has_joined and not n.has_ended and not self.is_connected(n.name)
        ]
        return {name: self._disconnected_at.setdefault(name, now) for name in workers}


def _decide(node: str, kind: FailureKind, since: float, timeout: float, action: Action) -> Decision:
    return Decision(node=node, kind=kind, since=since, deadline=since + timeout, action=action)


def _trainers(job: JobView) -> list[NodeView]:
    return [node for node in job.nodes if node.role in _TRAINER_ROLES]
