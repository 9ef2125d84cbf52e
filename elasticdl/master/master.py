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
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.checkpointing.checkpointer import Cutting
from elasticdl.master.checkpointing.snapshot_collector import Leftovers
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.job_state import FORM, JobState
from elasticdl.master.journal import Journal
from elasticdl.master.nodes.node_requests import NodeRequests
from elasticdl.master.nodes.supervisor import NodeSupervisor
from elasticdl.master.programs.launchers.launcher import places
from elasticdl.master.programs.node_environment import Surroundings
from elasticdl.master.recovery.lost_journal import Comeback, distrust, moved, take_over
from elasticdl.master.recovery.remote_snapshot import identity, pack, run_of
from elasticdl.master.servers.rebalancer import Moving
from elasticdl.master.servers.server_metrics import Asking, ServerFigures
from elasticdl.master.servers.worker_fence import Fencing
from elasticdl.master.settings import Plan
from elasticdl.master.tensorboard import EventFile
from elasticdl.master.throughput import Rate
from elasticdl.master.wakeup import Signal
from elasticdl.platforms.platform import Platform
from elasticdl.ps.client.coordinator import Coordinator

log = logging.getLogger("elasticdl.master")

# Compacting costs a snapshot (a few KB) and an fsync; replaying a record a few µs. So restarts stay well
# below a second.
_RECORDS_BETWEEN_COMPACTIONS = 20_000
# Beside the state in a journal's snapshot: of which job it is.
_OF = "of"
_HOT_COMMANDS = frozenset({"lease", "report"})


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
        self.clock = clock
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
        self.supervisor = NodeSupervisor(
            self,
            platform=platform,
            requests=NodeRequests(spec, environment=environment, surroundings=surroundings),
            fencing=self._fencing,
            clock=clock,
        )
        self.detector = self.supervisor.detector
        self._cannot_go_on: BaseException | None = None
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
            self.rate.add(self.clock(), samples)
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
        self.spawn(self.supervisor.watch_platform())
        self.spawn(self.supervisor.detect_failures())
        if self.plan.servers:
            self.spawn(self._moving.run())
            self.spawn(self._asking.run())
            self.spawn(self._leftovers.run())
        try:
            if self.state.gathering.active:
                self.spawn(self._comeback.gather())
            if self.plan.runs_command and not self.state.addresses:
                found = await self._platform.addresses(places(self.state.roster.targets))
                if found:
                    self.do("address", addresses=found)
            while True:
                if self._cannot_go_on is not None:
                    raise self._cannot_go_on
                if self.state.outcome:
                    break
                await self.reconcile()
                if not self.state.outcome:
                    await self.changed.wait(5.0)
            await self.supervisor.terminate_nodes()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
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
        self.supervisor.reconcile()
        if cut := self.cutting.to_be_taken():
            # All stand still: these figures are exact, and of a job that ends with it the last.
            self.spawn(self._asking.ask())
            self.spawn(self.cutting.take(cut))
        if self.cutting.to_be_saved():
            self.spawn(self.cutting.save())

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
