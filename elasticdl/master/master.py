"""The master of one job: the state machine, its journal, and the effects of both.

Commands come from the gRPC service (`master_service.py`), from the platform's events and from here. Each is applied,
written to the journal and only then answered. Everything with an effect outside (starting nodes, snapshots and
checkpoints, ending the job) is done by `reconcile`, which compares the state with what exists, does what is missing,
and is idempotent: a restarted master just reconciles again.

Failure modes
    The journal cannot be written (a full disk): the job fails at once with that error; no call was answered. A
    parameter server does not answer while a snapshot is taken or saved: the master waits; an event of the platform
    reports its death, upon which the state machine gives up the barrier. The platform fails: the job fails and the
    master exits.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.checkpointing.checkpointer import Checkpointer
from elasticdl.master.checkpointing.snapshot_collector import SnapshotCollector
from elasticdl.master.command_log import CommandLog
from elasticdl.master.commands.command import Command
from elasticdl.master.commands.job import ResumeJob
from elasticdl.master.commands.nodes import AssignAddresses
from elasticdl.master.job_state import JobState
from elasticdl.master.journal import Journal
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.nodes.node_requests import NodeRequests
from elasticdl.master.nodes.node_supervisor import NodeSupervisor
from elasticdl.master.programs.launchers.launcher import places
from elasticdl.master.programs.node_environment import Surroundings
from elasticdl.master.recovery.journal_recovery import JournalRecovery, has_moved, has_run
from elasticdl.master.recovery.reclaim import ReclaimPhase
from elasticdl.master.recovery.remote_snapshot import identity, pack, run_of
from elasticdl.master.scalar_sink import ScalarSink
from elasticdl.master.servers.rebalancer import Rebalancer
from elasticdl.master.servers.server_metrics import ServerFigures, ServerPoller
from elasticdl.master.servers.worker_fence import WorkerFence
from elasticdl.master.settings import JobSettings
from elasticdl.master.tensorboard import EventFile
from elasticdl.master.throughput import Rate, WorkerRates
from elasticdl.master.tracing.tracing import Tracing
from elasticdl.master.tracking.tracker import RunEnd
from elasticdl.master.tracking.tracking import Tracking
from elasticdl.master.wakeup import Signal
from elasticdl.platforms.platform import Platform
from elasticdl.ps.client.coordinator import Coordinator

log = logging.getLogger("elasticdl.master")
# The maximal number of scalars of a worker besides the loss; more are omitted.
_MOST_SCALARS = 100
_LONGEST_NAME = 100

R = TypeVar("R")


def journal_folder(folder: Path) -> Path:
    """Returns the folder of the journal in the folder of a job."""
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
        self.plan = JobSettings.of(spec)
        self.folder = folder
        self.state = JobState(self.plan)
        self.rate = Rate()
        self.worker_rates = WorkerRates()
        self.losses: list[tuple[int, float]] = []
        # As a program of the user's own counts its steps, where it tells.
        self.global_step = 0
        self.started = time.time()
        self._platform = platform
        self.clock = clock
        self._journal = journal or Journal(journal_folder(folder))
        self.run_id = run_of(token)
        self.identity = identity(spec, self.run_id, submitted=submitted)
        self.commands = CommandLog(state=self.state, journal=self._journal, identity=self.identity)
        self._servers = Coordinator(token)
        self.checkpointer = Checkpointer(self, self._servers)
        self._snapshot_collector = SnapshotCollector(self, self._servers)
        self._moving = Rebalancer(self, self._servers, clock)
        self._fencing = WorkerFence(self, self._servers, clock)
        self.figures = ServerFigures()
        # The count of the worker that has skipped most: in all-reduce all members skip the same ones.
        self.skipped_batches = 0
        self._asking = ServerPoller(self, self._servers)
        self._recovery = JournalRecovery(
            self,
            platform=platform,
            servers=self._servers,
            checkpoint_folder=self.checkpointer.folder,
            clock=clock,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self.supervisor = NodeSupervisor(
            self,
            platform=platform,
            requests=NodeRequests(spec, environment=environment, surroundings=surroundings),
            fencing=self._fencing,
            clock=clock,
        )
        self.detector = self.supervisor.detector
        self._cannot_go_on: BaseException | None = None
        # Where the journal ended that this master has replayed; None: it began with something else.
        self._replayed_end: int | None = None
        self._events = EventFile(folder / "tensorboard")
        self.tracking = Tracking.of(spec, key=self.run_id, folder=folder)
        self.tracing = Tracing.of(spec, run=self.run_id, folder=folder)
        self._sinks: tuple[ScalarSink, ...] = (self._events, self.tracking)
        # Joined and desired, as last recorded.
        # Workers that have joined, counted after each reconciliation: counting them for each report of thousands of
        # workers would take most of the master's time.
        self._ready_workers = 0
        self._recorded_workers: tuple[int, int] | None = None

    # -- commands --------------------------------------------------------------------------------------------

    def recover(self, kept: str | None = None, *, attempt: int = 1) -> None:
        """Continues where the journal ends; if there is none, from a snapshot `kept` elsewhere
        (`remote_snapshot.py`). `attempt`: above 1 for a job that was resumed after its end.
        """
        end, records = self._journal.end, self.commands.replay()
        has_run_before = has_run(self.folder)
        lost_machine = has_moved(self.folder)
        if records is not None:
            log.info("Continuing from the journal: %d records after the last snapshot.", records)
            if self._journal.has_lost_end:
                self._recovery.reclaim_lost_end(why="lines are missing in the file", all_known=False)
            elif lost_machine:
                self._recovery.reclaim_lost_end()
            if not self.state.reclaim.is_collecting:
                self._replayed_end = end
        elif kept is not None:
            self._recovery.restore_snapshot(kept)
        elif self._journal.is_lost or (self._journal.is_new and has_run_before):
            raise UserError(
                f"The journal in {self._journal.folder} is gone, and with it what was trained and by which worker.",
                hint="Submit the job again, from its last checkpoint if it has one (--checkpoint_dir_for_init).",
            )
        else:
            self.checkpointer.begin()
        if attempt > self.state.ending.attempt:
            self._resume(attempt)
        self.commands.compact()

    def _resume(self, attempt: int) -> None:
        """Begins another attempt, from the newest checkpoint on disk. Raises `UserError` if it is gone."""
        before = self.state.saved
        saved = self._recovery.newest_checkpoint(before)
        if before is not None and saved is None:
            raise UserError(
                f"The checkpoint {before.path}, from which job {self.spec.job_name} would be resumed, is gone.",
                hint="Start the job again under the same name: it begins with the first epoch.",
            )
        self.do(ResumeJob(attempt=attempt, saved=saved))
        start = f"checkpoint {saved.path}" if saved else "the beginning: there is no checkpoint"
        log.info("Resuming the job: attempt %d, from %s.", attempt, start)

    def record(self) -> str:
        """The snapshot to be kept where it outlives this machine."""
        return pack(self.state.snapshot(), of=self.identity)

    @property
    def journal_end(self) -> int:
        return self._journal.end

    def compare_journal(self, node: str, *, lineage: str, end: int) -> bool:
        """Whether the journal that was replayed had come to the end that a node remembers. If not, the job ends."""
        replayed = self._replayed_end
        if replayed is None or lineage != self.state.reclaim.lineage or end <= replayed:
            return True
        self._cannot_go_on = self._cannot_go_on or UserError(
            f"{node} remembers more than the journal in {self._journal.folder} has: it is an older copy, and what was "
            "trained since is not known any more.",
            hint="Submit the job again, from its last checkpoint if it has one (--checkpoint_dir_for_init).",
        )
        self.wake()
        return False

    def note_unknown_dataset(self, node: str, dataset: str) -> None:
        """A member of an all-reduce round trains a data set that is unknown to the master. After a recovery its
        announcement was in the part of the journal that is lost, and the job ends: no worker announces it again.
        """
        if self.state.reclaim.phase is ReclaimPhase.NOT_NEEDED:
            return
        self._cannot_go_on = self._cannot_go_on or UserError(
            f"{node} trains the data set {dataset}, of which the journal in {self._journal.folder} says nothing any "
            "more: its beginning is lost, and with it what was trained.",
            hint="Submit the job again, from its last checkpoint if it has one (--checkpoint_dir_for_init).",
        )
        self.wake()

    @property
    def changed(self) -> Signal:
        return self.commands.changed

    @property
    def work(self) -> Signal:
        return self.commands.work

    def do(self, command: Command[R]) -> R:
        result = self.commands.do(command)
        if self.tracing:
            self.tracing.observe(command, result, self.state.ledger)
        return result

    def wake(self) -> None:
        self.commands.wake()

    # -- what workers say, beside commands -------------------------------------------------------------------

    def note_progress(self, samples: int, loss: float | None, *, worker: str = "") -> None:
        """`worker`: whose samples they are, where one worker trains them."""
        if samples:
            self.rate.add(self.clock(), samples)
            if worker:
                self.worker_rates.add(worker, self.clock(), samples)
        if loss is not None:
            self.losses.append((self.state.ledger.steps, loss))
            # Enough for a plot; every second point of the past goes when there are too many.
            if len(self.losses) > 2000:
                del self.losses[:-1000:2]
            self._draw(
                self.state.ledger.steps,
                {
                    "loss": loss,
                    "samples_per_second": self.rate.per_second(self.clock()),
                    "workers": self._ready_workers,
                },
            )

    def note_scalars(self, values: dict[str, float]) -> None:
        """Records scalars of workers besides the loss, for TensorBoard and experiment trackers."""
        known = {
            name: value
            for name, value in sorted(values.items())[:_MOST_SCALARS]
            if math.isfinite(value) and 0 < len(name) <= _LONGEST_NAME
        }
        if known:
            self._draw(self.state.ledger.steps, known)

    def note_skipped(self, batches: int) -> None:
        self.skipped_batches = max(self.skipped_batches, batches)

    def note_evaluation(self, step: int, metrics: dict[str, float]) -> None:
        log.info("Evaluation metrics[step=%d]: %s", step, {k: round(v, 6) for k, v in metrics.items()})
        self._draw(step, {f"evaluation/{name}": value for name, value in metrics.items()})

    def add_sink(self, sink: ScalarSink) -> None:
        """Passes scalars on to this sink, too."""
        self._sinks = (*self._sinks, sink)

    def _draw(self, step: int, values: dict[str, float]) -> None:
        for sink in self._sinks:
            try:
                sink.scalars(step, values)
            except UserError as error:
                # A plot with a gap is no reason to end a job. A disk without room is reported by the journal.
                log.warning("%s", error)

    def _count_workers(self) -> None:
        """Counts the workers, and records their number when it changes, also while no loss is reported."""
        self._ready_workers = sum(node.joined for node in self.state.roster.alive("worker"))
        if not (self.tracking or self.tracing):
            return
        workers = self._ready_workers, self.state.roster.targets.get("worker", 0)
        self.tracing.observe_workers(*workers, step=self.state.ledger.steps)
        if workers != self._recorded_workers:
            self._recorded_workers = workers
            names = ("workers", "desired_workers")
            self.tracking.scalars(self.state.ledger.steps, dict(zip(names, workers, strict=True)))

    async def finish_tracking(self, state: str, message: str = "") -> None:
        """Records how the job ended: succeeded, failed or stopped."""
        await self.tracing.finish(state, message or self.state.message or self.state.stopping)
        saved = self.state.saved
        tags = {
            "elasticdl.message": message or self.state.message or self.state.stopping,
            "elasticdl.output": self.state.task_result,
            "elasticdl.checkpoint": saved.path if saved else "",
        }
        await self.tracking.finish(
            RunEnd(state=state, tags={name: value for name, value in tags.items() if value})
        )

    # -- running ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until the job is over and its nodes have ended."""
        self.tracking.start()
        self.tracing.begin(attempt=self.state.ending.attempt)
        self.spawn(self.supervisor.watch_platform())
        self.spawn(self.supervisor.detect_failures())
        if self.plan.servers:
            self.spawn(self._moving.run())
            self.spawn(self._asking.run())
            self.spawn(self._snapshot_collector.run())
        try:
            if self.state.reclaim.is_collecting:
                self.spawn(self._recovery.run())
            if self.plan.runs_command and not self.state.addresses:
                found = await self._platform.addresses(places(self.state.roster.targets))
                if found:
                    self.do(AssignAddresses(addresses=found))
            while True:
                if failure := self.commands.failure or self._cannot_go_on:
                    raise failure
                if self.state.outcome:
                    break
                await self.reconcile()
                self._count_workers()
                if not self.state.outcome:
                    await self.changed.wait(5.0)
            await self.supervisor.terminate_nodes()
            if self.tracking or self.tracing:
                is_failed = self.state.outcome == "succeeded" and not audit_ledger(self.state.ledger).exact
                await self.finish_tracking("failed" if is_failed else self.state.outcome)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._servers.close()
            self._events.close()
            self._journal.close()

    async def hear(self, worker: str) -> None:
        """Waits until reports of this worker can be processed: a master without its journal recovers first."""
        while self.state.reclaim.waits_for(worker) and not self.state.outcome:
            await self.changed.wait(1.0)

    async def list_nodes(self) -> None:
        """Waits until it is known which nodes there are."""
        while self.state.reclaim.is_collecting and not self._recovery.nodes_listed and not self.state.outcome:
            await self.changed.wait(1.0)

    async def reconcile(self) -> None:
        """Does what the state calls for and has not been done yet."""
        if self.state.reclaim.is_collecting:
            return
        self.supervisor.reconcile()
        if barrier := self.checkpointer.barrier_to_pass():
            # No worker pushes: these figures are exact, and the last ones of a job that ends with it.
            self.spawn(self._asking.ask())
            self.spawn(self.checkpointer.pass_barrier(barrier))
        if self.checkpointer.is_to_save():
            self.spawn(self.checkpointer.save())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Does it beside everything else. What goes wrong with it is the end of the master."""

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._cannot_go_on = self._cannot_go_on or error
                self.changed.fire()

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)
