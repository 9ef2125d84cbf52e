"""The node supervisor: starts, stops and observes the nodes of a job, and kills those that the failure detector names.

The roster (`lifecycle/roster.py`) decides which nodes a job should have, the failure detector (`health/`) which of them
have failed without exiting, the restart backoff when a replacement may start. The supervisor executes these decisions,
and converts the platform's reports to commands of the job.

Failure modes
    The platform cannot be reached: starts and stops wait for it, and nothing else does; a permanent error of the
    platform ends the master. Nodes ended while no master ran: they are missing from the platform's list, and are
    observed as killed. A node to be stopped was never started: the platform will not report its end, so it is observed
    as stopped. Killing one node takes long: the other decisions are dropped, and made again by the next check.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from elasticdl.master.commands.executor import CommandExecutor
from elasticdl.master.commands.nodes import ObserveNode, ReportHungNode, VacateNode
from elasticdl.master.commands.programs import RevokeLeases
from elasticdl.master.health.decisions import Action, Decision, FailureKind
from elasticdl.master.health.failure_detector import FailureDetector
from elasticdl.master.health.job_view import JobView, NodeView
from elasticdl.master.health.log_lines import UnresponsiveNodes, describe, reason
from elasticdl.master.health.restart_backoff import RestartBackoff
from elasticdl.master.health.straggler_time import StragglerTime
from elasticdl.master.health.timeouts import Timeouts
from elasticdl.master.job_state import JobState
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.nodes.node_requests import NodeRequests
from elasticdl.master.servers.worker_fence import LastWord, WorkerFence
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform

log = logging.getLogger("elasticdl.master")

# Messages of the platform that are remembered, so that each is logged once.
_MAX_MESSAGES = 1000


class Job(CommandExecutor, Protocol):
    """The part of the master that the supervisor uses."""

    @property
    def state(self) -> JobState: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class SupervisorSettings:
    # How often the failure detector is stepped.
    check_seconds: float = 1.0
    # From SIGTERM to SIGKILL: for programs, and nodes that have not joined.
    stop_grace_seconds: float = 10.0
    # The same for nodes that were asked to exit long before.
    late_stop_grace_seconds: float = 3.0
    # How long a draining program may take to exit after it has got its last shard.
    drain_seconds: float = 30.0
    # How long nodes may take to exit by themselves when the job is over, and when it has failed.
    exit_seconds: float = 15.0
    failed_exit_seconds: float = 5.0


class NodeSupervisor:
    def __init__(
        self,
        job: Job,
        *,
        platform: Platform,
        requests: NodeRequests,
        fencing: WorkerFence,
        clock: Callable[[], float],
        settings: SupervisorSettings | None = None,
    ) -> None:
        self._job = job
        # By node, for people. Not journaled.
        self.kill_reasons: dict[str, str] = {}
        self._platform = platform
        self._requests = requests
        self._fencing = fencing
        self._clock = clock
        self._settings = settings or SupervisorSettings()
        plan = job.state.plan
        self.detector = FailureDetector(Timeouts.of(plan), now=clock())
        self.unresponsive = UnresponsiveNodes()
        # The platform has accepted the first node.
        self.first_node_requested = asyncio.Event()
        # Whether a worker is blocked in a call for a shard; set by the service that holds those calls.
        self.straggler_time = StragglerTime()
        self.waits_for_shard: Callable[[str], bool] = lambda worker: False
        self._restarts = RestartBackoff(after_failures=plan.runs_command)
        self._requested: set[str] = set()
        self._timers: set[str] = set()
        self._logged_messages: set[str] = set()

    # -- desired nodes ---------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Starts the nodes that are missing and stops those that are to go. May be repeated."""
        self._start_missing()
        self._stop_draining()

    def _start_missing(self) -> None:
        state = self._job.state
        for node in state.roster.wanted():
            if node.name in self._requested:
                continue
            delay = self._restarts.delay(
                node.name, self._clock(), place=(node.role, node.slot), failures=node.failures
            )
            if delay is not None:
                if f"start {node.name}" not in self._timers:
                    log.info(
                        "Restarting %s in %.0f s (backoff after %d early exits)",
                        node.name,
                        delay.seconds,
                        delay.exits,
                    )
                self._after(f"start {node.name}", delay.seconds, self._job.wake)
                continue
            self._requested.add(node.name)
            self._note_started(node.name)
            log.info("Starting %s", node.name)
            request = self._requests.build(node, addresses=state.addresses, targets=state.roster.targets)
            # All at once, and without waiting for it: those that run go on meanwhile.
            self._job.spawn(self._start(request))

    async def _start(self, request: NodeRequest) -> None:
        await self._platform.start(request)
        self.first_node_requested.set()

    def _note_started(self, name: str) -> None:
        self.detector.node_started(name, self._clock())
        self._restarts.node_started(name, self._clock())

    def _after(self, what: str, seconds: float, then: Callable[[], None]) -> None:
        """Once, after so long; the same thing is not asked for twice."""
        if what not in self._timers:
            self._timers.add(what)
            asyncio.get_running_loop().call_later(seconds, then)

    def _stop_draining(self) -> None:
        """Nodes that have not joined are stopped at once. A program notices that it gets no more shards; one that does
        not exit then is stopped.
        """
        state = self._job.state
        for node in state.roster.nodes.values():
            if not node.draining or not node.alive:
                continue
            if not node.incarnation:
                self._after(f"stop {node.name}", 0.0, partial(self._stop_later, node.name))
            elif state.plan.runs_command:
                self._after(
                    f"stop {node.name}", self._settings.drain_seconds, partial(self._stop_later, node.name)
                )

    def _stop_later(self, name: str) -> None:
        self._job.spawn(self._stop(name))

    async def _stop(self, name: str) -> None:
        known = {status.name for status in await self._platform.nodes()}
        node = self._job.state.roster.nodes.get(name)
        if node is None or name in known or name in self._requested:
            await self._platform.stop(name, grace_seconds=self._settings.stop_grace_seconds)
            return
        # The platform will never report the end of one that was never started.
        not_begun = NodeStatus(
            name=name,
            role=node.role,
            phase=NodePhase.FAILED,
            reason=EndReason.STOPPED,
            message="it had not begun",
        )
        self.observe(not_begun)

    # -- observed nodes --------------------------------------------------------------------------------------

    async def watch_platform(self) -> None:
        """Turns the platform's reports into commands, for as long as it reports."""
        await self.observe_missing()
        async for status in self._platform.events():
            node = self._job.state.roster.nodes.get(status.name)
            if node is None or not node.alive:
                continue
            ended = status.phase in (NodePhase.SUCCEEDED, NodePhase.FAILED)
            if ended and not self._job.state.outcome:
                log.info("%s ended: %s %s", status.name, status.reason.value, status.message)
            elif not self._job.state.outcome:
                self._log_message(status)
            if status.phase is NodePhase.RUNNING and node.phase is NodePhase.PENDING:
                # It may have waited for its turn, or for its image.
                self._note_started(status.name)
            self._restarts.node_observed(
                status,
                self._clock(),
                place=(node.role, node.slot),
                is_draining=node.draining,
                has_progressed=self.detector.has_progressed(status.name),
            )
            if ended and status.role in ("ps", "chief"):
                # Others may now wait for it to come back, through no fault of theirs.
                self.detector.restart_stall_timers()
            if ended:
                self.note_end(status)
            else:
                self.observe(status)

    def note_end(self, status: NodeStatus) -> None:
        """The platform has reported the end of a node, or knows of it no more."""
        self.detector.node_ended(status.name)
        if status.role == "worker" and self._job.state.plan.servers:
            # Many may go together, and a server that is asked may be gone too, or hang.
            self._job.do(VacateNode(status=status))
            self._job.spawn(self._observe_end(status))
        else:
            self.observe(status)

    async def _observe_end(self, status: NodeStatus) -> None:
        self.observe(status, await self._fencing.last_word(status.name))

    def observe(self, status: NodeStatus, last: LastWord | None = None) -> None:
        last = last or LastWord()
        self._job.do(
            ObserveNode(status=status, credit=last.credit, partial=last.partial, in_doubt=last.in_doubt)
        )

    def _log_message(self, status: NodeStatus) -> None:
        """Logs the reason why a node does not run or stay; the same message for many nodes is logged once."""
        message = f"{status.phase.value} {status.message}"
        if status.phase is NodePhase.LEAVING:
            log.info("Leaving: %s is being terminated. %s", status.name, status.message)
        elif status.message and message not in self._logged_messages:
            if len(self._logged_messages) >= _MAX_MESSAGES:
                self._logged_messages.clear()
            self._logged_messages.add(message)
            waits = " waits" if status.phase is NodePhase.PENDING else ""
            log.warning("%s%s: %s", status.name, waits, status.message)

    async def observe_missing(self) -> None:
        """Observes the end of nodes that ended while no master ran, and left no trace."""
        # Not those that begin from now on, while others are asked about these.
        seen = [node for node in self._job.state.roster.nodes.values() if node.seen]
        known = {status.name for status in await self._platform.nodes()}
        for node in [node for node in seen if node.name not in known]:
            log.info("Requeueing the work of %s, which ended while no master ran", node.name)
            gone = NodeStatus(
                name=node.name,
                role=node.role,
                phase=NodePhase.FAILED,
                reason=EndReason.KILLED,
                message="it ended while no master ran",
            )
            self.note_end(gone)

    # -- failed nodes ----------------------------------------------------------------------------------------

    @contextmanager
    def directive_stream(self, node: str) -> Iterator[None]:
        """To be held as long as a node's call for directives is open: its heartbeat."""
        self.detector.stream_opened(node)
        try:
            yield
        finally:
            self.detector.stream_closed(node, self._clock())

    async def detect_failures(self) -> None:
        """Steps the failure detector, forever."""
        while True:
            await asyncio.sleep(self._settings.check_seconds)
            await self.check_nodes()

    async def check_nodes(self) -> None:
        now = self._clock()
        view = job_view(self._job.state, self.waits_for_shard)
        self.straggler_time.observe(view, now)
        decisions = self.detector.check(view, now)
        await self._apply((d for d in decisions if d.action is not Action.REPORT), now)
        self.unresponsive.update((d for d in decisions if d.action is Action.REPORT), now=now)

    async def note_server_probe(self, answered: Mapping[str, bool]) -> None:
        """All parameter servers have been probed, by name: these have answered, or not in time."""
        now, state = self._clock(), self._job.state
        slots = {state.roster.nodes[name].slot for name, heard in answered.items() if not heard}
        replaceable = bool(slots) and state.placing.may_lose(slots)
        await self._apply(self.detector.servers_probed(answered, now, replaceable=replaceable), now)

    async def kill_straggler(self, worker: str, *, timeout_seconds: float) -> None:
        """The other members of an all-reduce step wait for this worker. Spares it if it has made progress meanwhile."""
        now = self._clock()
        decision = self.detector.check_straggler(worker, now, timeout_seconds=timeout_seconds)
        await self._apply([decision] if decision is not None else [], now)

    async def _apply(self, decisions: Iterable[Decision], now: float) -> None:
        """Executes the decisions of the failure detector, and is the only place that does. `now`: when they were
        made.
        """
        for decision in decisions:
            if self._clock() - now > self.detector.timeouts.master_pause_seconds:
                # Killing the others took long, and this one may be back: the next check decides.
                break
            node = decision.node
            self.detector.acted_on(decision, self._clock())
            log.warning("%s", describe(decision, now=now, shards=self._job.state.ledger.leases.count(node)))
            if decision.action is Action.REQUEUE_SHARDS:
                self._job.do(RevokeLeases(worker=node))
                continue
            if decision.action is Action.FAIL:
                stalled = decision.kind is FailureKind.STALLED
                seconds = decision.elapsed_seconds(now) if stalled else 0.0
                self._job.do(ReportHungNode(node=node, stalled_seconds=seconds))
            self.kill_reasons[node] = reason(decision, now=now)
            await self._platform.stop(node, grace_seconds=0)

    # -- the end ---------------------------------------------------------------------------------------------

    async def terminate_nodes(self) -> None:
        """Stops nodes that do not exit by themselves after the end of the job."""
        job, settings = self._job, self._settings
        runs_command = job.state.plan.runs_command
        nodes = list(job.state.roster.nodes.values())
        stopped = [n for n in nodes if runs_command or not n.incarnation]
        await self._stop_all(stopped, settings.stop_grace_seconds)
        patience = (
            settings.exit_seconds
            if job.state.outcome != "failed" or runs_command
            else settings.failed_exit_seconds
        )
        deadline = self._clock() + patience
        job.wake()
        while self._clock() < deadline and any(
            n.alive and not self._restarts.is_waiting(n.name) for n in nodes
        ):
            await job.changed.wait(max(0.05, deadline - self._clock()))
        # A node that was stopped has its whole grace period.
        await self._stop_all([n for n in nodes if n not in stopped], settings.late_stop_grace_seconds)

    async def _stop_all(self, nodes: list[Node], grace_seconds: float) -> None:
        stops = [self._platform.stop(n.name, grace_seconds=grace_seconds) for n in nodes if n.alive]
        await asyncio.gather(*stops)


def job_view(state: JobState, waits_for_shard: Callable[[str], bool]) -> JobView:
    """The job as the failure detector sees it."""
    at_barrier = frozenset(state.barrier.reached) if state.barrier is not None else frozenset()
    ledger = state.ledger
    # Programs of users ask when they want; a worker of ours always wants a shard.
    is_work_out = not state.plan.runs_command and (
        state.barrier is not None or not any(ledger.leasable(dataset) for dataset in ledger.datasets())
    )
    return JobView(
        nodes=tuple(
            NodeView(
                name=node.name,
                role=node.role,
                is_running=node.phase is NodePhase.RUNNING,
                has_joined=bool(node.incarnation),
                is_leaving=node.goes,
                has_ended=node.vacated,
                shards=state.ledger.leases.count(node.name),
                is_at_barrier=node.name in at_barrier,
                waits_for_shard=waits_for_shard(node.name),
                is_without_work=not ledger.leases.count(node.name)
                and (is_work_out or waits_for_shard(node.name)),
            )
            for node in state.roster.nodes.values()
            if node.alive
        ),
        failed=frozenset(state.failed),
        has_announced_data=bool(state.data.announced),
    )
