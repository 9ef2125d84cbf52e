"""The master of one job: the state machine, its journal, and what has to be done about them.

Commands come from the gRPC service (`service.py`), from the platform's events and from here. Each is
applied, written to the journal and only then answered. Everything with an effect outside (starting nodes,
freezing and saving the model, ending the job) is done by `reconcile`, which looks at the state, does what
is missing, and may be repeated: a master that comes back after a kill just looks again.

Failure modes
    The journal cannot be written (a full disk): the job fails at once and says so; nobody was answered. A
    parameter server does not answer while the model is frozen or saved: waited for; its death arrives as an
    event of the platform, which makes the state machine give up the cut. The platform is gone: so is the
    job; the master ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.checkpointing.checkpointer import Cutting
from elasticdl.master.checkpointing.snapshot_collector import Leftovers
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.health.restart_backoff import Pauses
from elasticdl.master.health.server_monitor import IRREPLACEABLE, Silence
from elasticdl.master.health.unresponsive_nodes import Unheard
from elasticdl.master.health.worker_monitor import STOOD_STILL_SECONDS, Liveness
from elasticdl.master.job_state import FORM, JobState
from elasticdl.master.journal import Journal
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.programs.launchers.launcher import places
from elasticdl.master.programs.node_environment import Surroundings
from elasticdl.master.programs.program_nodes import ProgramNodes
from elasticdl.master.recovery.lost_journal import Comeback, distrust, moved, take_over
from elasticdl.master.recovery.remote_snapshot import identity, pack, run_of
from elasticdl.master.servers.rebalancer import Moving
from elasticdl.master.servers.server_metrics import Asking, ServerFigures
from elasticdl.master.servers.worker_fence import Fencing, LastWord
from elasticdl.master.settings import Plan
from elasticdl.master.tensorboard import EventFile
from elasticdl.master.throughput import Rate
from elasticdl.master.wakeup import Signal
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform
from elasticdl.ps.client.coordinator import Coordinator

log = logging.getLogger("elasticdl.master")

# Compacting costs a snapshot (a few KB) and an fsync; replaying a record a few µs. So restarts stay well
# below a second.
_RECORDS_BETWEEN_COMPACTIONS = 20_000
# Beside the state in a journal's snapshot: of which job it is.
_OF = "of"
# How long nodes may take to end by themselves when the job is over.
_GRACE_SECONDS = 15.0
# How long a program may take to end after its SIGTERM; and a node of ours, which has been told long before.
_STOP_SECONDS = 10.0
_LATE_STOP_SECONDS = 3.0
_HOT_COMMANDS = frozenset({"lease", "report"})
# Of what nodes wait for, so that the same is not told again and again.
_WORDS_REMEMBERED = 1000
# How long a program may take to end after it has been told that there is no more data for it.
_LEAVE_SECONDS = 30.0


def journal_folder(folder: Path) -> Path:
    """Where the journal is, in the folder of a job."""
    return folder / "journal"


class Master:
    def __init__(
        self,
        *,
        spec: JobSpec,
        folder: Path,
        platform: Platform,
        token: str,
        environment: dict[str, str],
        surroundings: Surroundings | None = None,
        journal: Journal | None = None,
        submitted: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.plan = Plan.of(spec)
        self.folder = folder
        self.state = JobState(self.plan)
        self.changed = Signal()
        self.work = Signal()
        self.rate = Rate()
        self.losses: list[tuple[int, float]] = []
        # As a program of the user's own counts its steps, where it tells.
        self.global_step = 0
        self.started = time.time()
        self._platform = platform
        self._environment = environment
        self._surroundings = surroundings or Surroundings()
        self._clock = clock
        self._journal = journal or Journal(journal_folder(folder))
        self.run_id = run_of(token)
        self.identity = identity(spec, self.run_id, submitted=submitted)
        self._records = 0
        self._control_key: tuple[Any, ...] = ()
        self._servers = Coordinator(token)
        self.cutting = Cutting(self, self._servers)
        self._leftovers = Leftovers(self, self._servers)
        self._moving = Moving(self, self._servers, clock)
        self._fencing = Fencing(self, self._servers, clock)
        self.figures = ServerFigures()
        self._asking = Asking(self, self._servers)
        self._comeback = Comeback(self, platform=platform, servers=self._servers, clock=clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_nodes: set[str] = set()
        # The platform has been asked for the first node, and has answered.
        self.nodes_asked_for = asyncio.Event()
        self.liveness = Liveness(self.state, clock)
        self._silence = Silence(self.plan)
        self.unheard = Unheard(self.plan, liveness=self.liveness, silence=self._silence)
        self._cannot_go_on: BaseException | None = None
        self._programs = ProgramNodes(spec, environment=environment, surroundings=self._surroundings)
        self._pauses = Pauses(clock, after_failures=self.plan.runs_command)
        # What nodes wait for that are not running, as it was told last.
        self._told: set[str] = set()
        self._timers: set[str] = set()
        # Workers that are held in a call for a shard; set by whoever serves those.
        self.waits_for_shard: Callable[[str], bool] = lambda worker: False
        self._events = EventFile(folder / "tensorboard")

    # -- commands --------------------------------------------------------------------------------------------

    def recover(self, kept: str | None = None) -> None:
        """Comes back to where the journal ends; if there is none, to a snapshot `kept` elsewhere
        (`remote_snapshot.py`).
        """
        snapshot, records = self._journal.read()
        if snapshot is not None:
            self._check_own(snapshot)
        lost_machine = moved(self.folder)
        if snapshot is not None:
            self.state.restore(snapshot)
        count = 0
        # Not in the first journals.
        form = snapshot.get("form", 1) if snapshot is not None else FORM
        for record in records:
            if form != FORM:
                raise self._of_another_version()
            self.state.apply(record["do"], record["with"])
            count += 1
        if snapshot is not None or count:
            log.info("Continuing from the journal: %d records after the last snapshot.", count)
            if lost_machine:
                distrust(self)
        elif kept is not None:
            take_over(self, kept)
        else:
            self.cutting.begin()
        self._compact()

    def _check_own(self, snapshot: dict[str, Any]) -> None:
        """Raises `UserError` if it is of another job, on a volume that both have."""
        # Not by the JobSpec: another version of us writes the same one in other words. The first journals do not say.
        found = snapshot.get(_OF) or self.identity
        if any(found[name] != self.identity[name] for name in ("job", "run")):
            raise UserError(
                f"The journal in {self._journal.folder} is not of this job {self.spec.job_name}, but of another one "
                f"(job {found['job']}, run {found['run']}).",
                hint="Every job needs a folder of its own. On a cluster --journal_dir makes one for each.",
            )

    def _of_another_version(self) -> UserError:
        """To replay a record is to come to the answers that were given when it was written."""
        return UserError(
            f"The journal in {self._journal.folder} was written by another version of ElasticDL, to which some of its "
            "records meant something else.",
            hint="Go on with that version, or begin the job anew, from its last checkpoint if it has one.",
        )

    def _compact(self) -> None:
        self._journal.compact({**self.state.snapshot(), _OF: self.identity})

    def record(self) -> str:
        """The snapshot to be kept where it outlives this machine."""
        return pack(self.state.snapshot(), of=self.identity)

    def do(self, command: str, **arguments: Any) -> Any:
        """Applies a command and writes it down. Whoever answers on it, answers the truth."""
        result = self.state.apply(command, arguments)
        try:
            self._journal.append({"do": command, "with": arguments})
            self._records += 1
            if self._records >= _RECORDS_BETWEEN_COMPACTIONS:
                self._records = 0
                self._compact()
        except UserError as error:
            # Whoever asked gets no answer; what the state says now is not written and must not be acted on.
            self._cannot_go_on = error
            self.changed.fire()
            raise
        if command not in _HOT_COMMANDS or self._control() != self._control_key:
            self.wake()
        elif self.work and command == "report":
            self.work.fire()
        return result

    def wake(self) -> None:
        self._control_key = self._control()
        self.changed.fire()
        self.work.fire()

    def _control(self) -> tuple[Any, ...]:
        """What directives are made of, as far as leases and reports can change it."""
        s = self.state
        return (
            s.cut.number if s.cut else 0,
            s.cuts_passed,
            s.evaluation.number if s.evaluation else 0,
            s.evaluation is not None and s.ledger.leasable(s.evaluation.dataset),
            s.epochs_ended[-1]["epoch"] if s.epochs_ended else -1,
            s.outcome,
            s.task,
            len(s.truncations),
            s.ledger.epoch(TRAINING) if TRAINING in s.sizes else 0,
        )

    # -- what workers say, beside commands -------------------------------------------------------------------

    def note_progress(self, samples: int, loss: float | None) -> None:
        if samples:
            self.rate.add(self._clock(), samples)
        if loss is not None:
            self.losses.append((self.state.ledger.steps, loss))
            # Enough for a plot; every second point of the past goes when there are too many.
            if len(self.losses) > 2000:
                del self.losses[:-1000:2]
            self._draw(self.state.ledger.steps, {"loss": loss})

    def note_evaluation(self, step: int, metrics: dict[str, float]) -> None:
        log.info("Evaluation metrics[step=%d]: %s", step, {k: round(v, 6) for k, v in metrics.items()})
        self._draw(step, {f"evaluation/{name}": value for name, value in metrics.items()})

    def _draw(self, step: int, values: dict[str, float]) -> None:
        try:
            self._events.scalars(step, values)
        except UserError as error:
            # A plot with a gap is no reason to end a job. A disk without room is told by the journal.
            log.warning("%s", error)

    # -- running ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the job is over and its nodes have ended."""
        watching = asyncio.create_task(self._watch_platform())
        stalls = asyncio.create_task(self._look_for_stalls())
        if self.plan.servers:
            self._spawn(self._moving.run())
            self._spawn(self._asking.run())
            self._spawn(self._leftovers.run())
        try:
            if self.state.gathering.active:
                self._spawn(self._comeback.gather())
            if self.plan.runs_command and not self.state.addresses:
                found = await self._platform.addresses(places(self.state.roster.targets))
                if found:
                    self.do("address", addresses=found)
            while True:
                if self._cannot_go_on is not None:
                    raise self._cannot_go_on
                if self.state.outcome:
                    break
                for task in (watching, stalls):
                    if task.done():
                        task.result()
                await self.reconcile()
                if not self.state.outcome:
                    await self.changed.wait(5.0)
            await self._end_nodes()
        finally:
            for task in (watching, stalls, *self._tasks):
                task.cancel()
            await asyncio.gather(watching, stalls, *self._tasks, return_exceptions=True)
            await self._servers.close()
            self._events.close()
            self._journal.close()

    async def hear(self, worker: str) -> None:
        """Waits until what this worker says can be understood: a master that has forgotten something is told first."""
        while self.state.gathering.waits_for(worker) and not self.state.outcome:
            await self.changed.wait(1.0)

    async def list_nodes(self) -> None:
        """Waits until it is known which nodes there are."""
        while self.state.gathering.active and not self._comeback.listed and not self.state.outcome:
            await self.changed.wait(1.0)

    async def reconcile(self) -> None:
        """Does what the state calls for and has not been done yet."""
        if self.state.gathering.active:
            return
        for node in self.state.roster.wanted():
            if node.name in self._started_nodes:
                continue
            if pause := self._pauses.pause(node):
                if f"start {node.name}" not in self._timers:
                    log.info("%s is started in %.0f s: those before it did not get far.", node.name, pause)
                self._after(f"start {node.name}", pause, self.wake)
                continue
            self._started_nodes.add(node.name)
            self._has_started(node.name)
            log.info("Starting %s.", node.name)
            # All at once, and without waiting for it: those that run go on meanwhile.
            self._spawn(self._start(self._request(node)))
        self._send_away()
        if cut := self.cutting.to_be_taken():
            # All stand still: these figures are exact, and of a job that ends with it the last.
            self._spawn(self._asking.ask())
            self._spawn(self.cutting.take(cut))
        if self.cutting.to_be_saved():
            self._spawn(self.cutting.save())

    async def _start(self, request: NodeRequest) -> None:
        await self._platform.start(request)
        self.nodes_asked_for.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Does it beside everything else. What goes wrong with it is the end of the master."""

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._cannot_go_on = self._cannot_go_on or error
                self.changed.fire()

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)

    def _has_started(self, name: str) -> None:
        self.liveness.started(name)
        self._pauses.started(name)

    def _after(self, what: str, seconds: float, then: Callable[[], None]) -> None:
        """Once, after so long; the same thing is not asked for twice."""
        if what not in self._timers:
            self._timers.add(what)
            asyncio.get_running_loop().call_later(seconds, then)

    def _send_away(self) -> None:
        """Who has not begun is stopped. Programs are told to go by getting no shard any more; who does not end then is
        ended.
        """
        for node in self.state.roster.nodes.values():
            if not node.draining or not node.alive:
                continue
            if not node.incarnation:
                self._after(f"stop {node.name}", 0.0, partial(self._stop_later, node.name))
            elif self.plan.runs_command:
                self._after(f"stop {node.name}", _LEAVE_SECONDS, partial(self._stop_later, node.name))

    def _stop_later(self, name: str) -> None:
        self._spawn(self._stop(name))

    async def _stop(self, name: str) -> None:
        known = {status.name for status in await self._platform.nodes()}
        node = self.state.roster.nodes.get(name)
        if node is None or name in known or name in self._started_nodes:
            await self._platform.stop(name, grace_seconds=_STOP_SECONDS)
            return
        # Nobody will ever say what has become of one that was never started.
        not_begun = NodeStatus(
            name=name,
            role=node.role,
            phase=NodePhase.FAILED,
            reason=EndReason.STOPPED,
            message="it had not begun",
        )
        self.observe(not_begun)

    def _request(self, node: Node) -> NodeRequest:
        if self.plan.runs_command:
            return self._programs.request(
                node, addresses=self.state.addresses, targets=self.state.roster.targets
            )
        name, role, slot, number = node.name, node.role, node.slot, node.number
        environment = {
            **self._environment,
            **self.spec.nodes.envs,
            "ELASTICDL_NODE": name,
            "WORKER_ID": str(slot if role == "ps" else number),
            "WORKER_TYPE": role,
            "WORKER_NUM": str(self.state.roster.targets["worker"]),
            # What a node prints must be in its log when it is killed the next moment.
            "PYTHONUNBUFFERED": "1",
        }
        cores = self._surroundings.shared_cores
        if (
            role == "worker"
            and cores is not None
            and "ELASTICDL_THREADS" not in {**os.environ, **environment}
        ):
            # Frameworks take a thread a core each; several workers of a machine would fight over the cores.
            environment["ELASTICDL_THREADS"] = str(max(1, cores // self.state.roster.targets["worker"]))
        return NodeRequest(
            name=name,
            role=role,
            command=(self._surroundings.python, "-m", f"elasticdl.{role}"),
            environment=environment,
            place=slot,
            places=self.state.roster.targets[role],
            memory_doublings=node.memory_doublings,
        )

    # -- nodes -----------------------------------------------------------------------------------------------

    async def _watch_platform(self) -> None:
        await self._notice_the_missing()
        async for status in self._platform.events():
            node = self.state.roster.nodes.get(status.name)
            if node is None or not node.alive:
                continue
            ended = status.phase in (NodePhase.SUCCEEDED, NodePhase.FAILED)
            if ended and not self.state.outcome:
                log.info("%s ended: %s %s", status.name, status.reason.value, status.message)
            elif not self.state.outcome:
                self._tell_of(status)
            if status.phase is NodePhase.RUNNING and node.phase is NodePhase.PENDING:
                # It may have waited for its turn, or for its image.
                self._has_started(status.name)
            self._pauses.seen(node, status, moved=self.liveness.has_moved(status.name))
            if ended and status.role in ("ps", "chief"):
                # Others may now wait for it to come back, through no fault of theirs.
                self.liveness.excuse()
            if ended:
                self.note_end(status)
            else:
                self.observe(status)

    def note_end(self, status: NodeStatus) -> None:
        """The platform has said that a node has ended, or knows of it no more."""
        self.liveness.ended(status.name)
        if status.role == "worker" and self.plan.servers:
            # Many may go together, and a server that is asked may be gone too, or hang.
            self.do("vacate", status=_fields(status))
            self._spawn(self._observe_end(status))
        else:
            self.observe(status)

    async def _observe_end(self, status: NodeStatus) -> None:
        self.observe(status, await self._fencing.last_word(status.name))

    def observe(self, status: NodeStatus, last: LastWord | None = None) -> None:
        last = last or LastWord()
        self.do("observe", status=_fields(status), credit=last.credit, in_doubt=last.in_doubt)

    def _tell_of(self, status: NodeStatus) -> None:
        """What keeps a node from running, or from staying; many are kept by the same."""
        words = f"{status.phase.value} {status.message}"
        if status.phase is NodePhase.LEAVING:
            log.info("%s is being ended by somebody. %s", status.name, status.message)
        elif status.message and words not in self._told:
            if len(self._told) >= _WORDS_REMEMBERED:
                self._told.clear()
            self._told.add(words)
            waits = " waits" if status.phase is NodePhase.PENDING else ""
            log.warning("%s%s: %s", status.name, waits, status.message)

    async def _notice_the_missing(self) -> None:
        """Nodes that went while there was no master, and left no trace."""
        # Not those that begin from now on, while others are asked about these.
        seen = [node for node in self.state.roster.nodes.values() if node.seen]
        known = {status.name for status in await self._platform.nodes()}
        for node in [node for node in seen if node.name not in known]:
            log.info("%s has gone while there was no master.", node.name)
            gone = NodeStatus(
                name=node.name,
                role=node.role,
                phase=NodePhase.FAILED,
                reason=EndReason.KILLED,
                message="it went while there was no master",
            )
            self.note_end(gone)

    async def _look_for_stalls(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            await self.end_the_stuck(self._clock())

    async def end_the_stuck(self, now: float) -> None:
        self.liveness.look(now)
        for worker in self.liveness.stalled(now):
            self.liveness.excuse(worker)
            if self.waits_for_shard(worker):
                log.warning("%s waits for a shard and does not know of those it was given.", worker)
                self.do("data.take_back", worker=worker)
                continue
            log.warning("%s makes no progress: it is ended and its shards go to others.", worker)
            await self._platform.stop(worker, grace_seconds=0)
        for worker in self.liveness.astray(now):
            if self._clock() - now > STOOD_STILL_SECONDS:
                # Ending the others took long, and this one may be back.
                break
            self.liveness.excuse(worker)
            log.warning("%s cannot be reached any more: it is ended, and another takes its place.", worker)
            await self._platform.stop(worker, grace_seconds=0)
        for worker in self.liveness.lingering(now):
            self.liveness.excuse(worker)
            log.warning("%s has failed and does not end: it is ended.", worker)
            await self._platform.stop(worker, grace_seconds=0)
        for worker in self.liveness.silent(now):
            log.warning("%s has said nothing since its start: it is ended and started again.", worker)
            self.liveness.heard(worker)
            self.do("hung", node=worker)
            await self._platform.stop(worker, grace_seconds=0)
        for node in self.liveness.late(now):
            if self._clock() - now > STOOD_STILL_SECONDS:
                break
            log.warning("%s has not joined since its start: it is ended and another takes its place.", node)
            # If it is there all the same, its time begins anew.
            self.liveness.started(node)
            self.do("hung", node=node)
            await self._platform.stop(node, grace_seconds=0)
        self.unheard.look(now)

    async def note_answers(self, answered: Mapping[str, bool]) -> None:
        """The parameter servers have been asked how they do. One that has not answered for long is ended."""
        now = self._clock()
        self._silence.asked(answered, now)
        if not self._silence.silent:
            return
        # Whoever pushes waits for it.
        self.liveness.excuse()
        slots = {self.state.roster.nodes[name].slot for name in self._silence.silent}
        times = 1.0 if self.state.placing.may_lose(slots) else IRREPLACEABLE
        for name in self._silence.too_long(now, times=times):
            log.warning("%s does not answer any more: it is ended, and another takes its place.", name)
            self._silence.give_up(name)
            await self._platform.stop(name, grace_seconds=0)

    async def end_hanging(self, worker: str, limit: float) -> None:
        """A worker that others wait for, unless it has been heard of."""
        if self.liveness.unheard_of(worker, limit):
            log.warning("%s makes the others wait: it is ended, and they go on without it.", worker)
            await self._platform.stop(worker, grace_seconds=0)

    async def _end_nodes(self) -> None:
        """Nodes have been told that the job is over; who does not go is sent."""
        nodes = list(self.state.roster.nodes.values())
        stopped = [n for n in nodes if self.plan.runs_command or not n.incarnation]
        await self._stop_all(stopped, _STOP_SECONDS)
        patience = _GRACE_SECONDS if self.state.outcome != "failed" or self.plan.runs_command else 5.0
        deadline = self._clock() + patience
        self.wake()
        while self._clock() < deadline and any(n.alive and not self._pauses.waits(n.name) for n in nodes):
            await self.changed.wait(max(0.05, deadline - self._clock()))
        # Who has been stopped has its grace, whole.
        await self._stop_all([n for n in nodes if n not in stopped], _LATE_STOP_SECONDS)

    async def _stop_all(self, nodes: list[Node], grace_seconds: float) -> None:
        stops = [self._platform.stop(n.name, grace_seconds=grace_seconds) for n in nodes if n.alive]
        await asyncio.gather(*stops)


def _fields(status: NodeStatus) -> dict[str, Any]:
    """As they are written down."""
    return {**asdict(status), "phase": status.phase.value, "reason": status.reason.value}
