"""The state of a job, as one deterministic machine.

Every change is a command (`commands/`). The command log writes each to the journal before it replies, and replays them
when a master recovers; so a command depends on nothing but its fields and the state: no clock, no randomness, no I/O. A
command that raises leaves the state as it was and is not journaled.

Each component owns its part of the state, and is the only one that assigns it: the ledger, the roster, shards
(`dispatcher.py`), evaluations, epochs, the checkpoint cycle, the generation of the model, the data sets and steps of
training programs, the bucket map, the recovery from a lost journal. `JobState` composes them, pairs commands with
handlers, and has the handlers that concern nodes.

After each command the machine settles: is an evaluation or a checkpoint due, is an epoch or the job over, which nodes
are missing? What should be done about it is not returned but can be read off the state at any time (`roster.wanted()`,
`cycle`, `evaluation`, see also `directives.py`), which is what makes a restart harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypedDict, TypeVar

from elasticdl.master.allreduce.training_steps import TrainingSteps
from elasticdl.master.checkpointing.checkpoint_cycle import (
    Barrier,
    CheckpointCycle,
    CheckpointPhase,
)
from elasticdl.master.checkpointing.model_generation import ModelGeneration
from elasticdl.master.checkpointing.rollback import Rollback
from elasticdl.master.commands.bucket_placement import (
    AdoptBucketMap,
    AdvanceMigration,
    RebalanceBuckets,
    RenumberBucketMap,
    ReplanBuckets,
)
from elasticdl.master.commands.checkpoints import (
    FailCheckpoint,
    FinishCheckpoint,
    PassBarrier,
    ReachBarrier,
    RequestCheckpoint,
    SavedCheckpoint,
    StartFromCheckpoint,
)
from elasticdl.master.commands.command import Command, Handler
from elasticdl.master.commands.evaluations import ClaimEvaluation, FinishEvaluation, ReportEvaluation
from elasticdl.master.commands.job import AddRemarks, FinishTask, ResumeJob, StopJob
from elasticdl.master.commands.nodes import (
    AssignAddresses,
    JoinNode,
    ObserveNode,
    ReportFailure,
    ReportHungNode,
    ScaleRole,
    VacateNode,
)
from elasticdl.master.commands.programs import (
    AdvanceSteps,
    FailShard,
    HoldTrainingState,
    OpenDataset,
    ReleaseTrainingState,
    ResetDataset,
    RestoreShards,
    ReturnLeases,
    RevokeLeases,
)
from elasticdl.master.commands.recovery import (
    AdoptNode,
    FinishReclaim,
    RaiseGeneration,
    ReclaimShards,
    SkipNodeNumber,
    StartReclaim,
)
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards, ReportProgress, TruncateLease
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.ledger.ledger import Ledger, ShardGivesUp
from elasticdl.master.lifecycle.dataset_sizes import DatasetSizes
from elasticdl.master.lifecycle.dispatcher import Dispatcher
from elasticdl.master.lifecycle.epochs import Epochs
from elasticdl.master.lifecycle.evaluation import Evaluation
from elasticdl.master.lifecycle.evaluations import Evaluations
from elasticdl.master.lifecycle.job_outcome import JobOutcome
from elasticdl.master.lifecycle.leader_task import EXPORT, LeaderTask
from elasticdl.master.lifecycle.roster import JobFailure, Node, Roster
from elasticdl.master.lifecycle.unreadable_samples import UnreadableSampleLimit
from elasticdl.master.programs.program_completion import ProgramCompletion
from elasticdl.master.programs.program_datasets import ProgramDatasets
from elasticdl.master.recovery.reclaim import Reclaim
from elasticdl.master.recovery.resumption import resume
from elasticdl.master.servers.bucket_placement import BucketPlacement
from elasticdl.master.settings import JobSettings
from elasticdl.master.training_schedule import TrainingSchedule
from elasticdl.platforms.platform import EndReason, NodeStatus

R = TypeVar("R")

# A job's record has little room.
_REMARKS = 20
_REMARK_LENGTH = 500
# Of the journal. It grows whenever a command comes to mean something else: what one version wrote, another that applies
# it differently must not replay.
FORM = 5
# After these no place is without a node that had one before. They come from thousands of workers: what they cost must
# not grow with the number of nodes.
_KEEP_PLACES = (JoinNode, LeaseShards, ReportProgress)


class _Part(Protocol):
    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


class _Shared(TypedDict):
    settings: JobSettings
    ledger: Ledger
    roster: Roster


@dataclass(frozen=True, kw_only=True)
class WorkerError:
    """The error that a worker has reported, and the shard on which it happened."""

    lease_id: int = 0
    message: str = ""
    traceback: str = ""


class JobState:
    def __init__(self, plan: JobSettings) -> None:
        self.plan = plan
        self.ledger = Ledger()
        self.roster = Roster(
            max_failures=plan.max_node_failures,
            targets=plan.targets,
            run_to_their_end=plan.runs_command,
            replaced_early=plan.replaced_early,
        )
        self.ending = JobOutcome()
        self.dataset_sizes = DatasetSizes()
        self.epochs = Epochs()
        self.leader_task = LeaderTask()
        self.model = ModelGeneration()
        # Workers that have reported an error and have not exited yet. Until then their leases stay with them.
        self.failed: dict[str, WorkerError] = {}
        # Where the nodes of a program find each other, by role: these stay when a node is replaced.
        self.addresses: dict[str, list[str]] = {}
        # Remarks of workers on the model, for the user who started the job.
        self.remarks: list[str] = []
        self.reclaim = Reclaim(self)
        shared: _Shared = {"settings": plan, "ledger": self.ledger, "roster": self.roster}
        ledger, sizes, outcome = self.ledger, self.dataset_sizes, self.ending
        unreadable = UnreadableSampleLimit(ledger=ledger, outcome=outcome, max_samples=plan.max_bad_records)
        self.evaluations = Evaluations(**shared, sizes=sizes, unreadable=unreadable)
        self.cycle = CheckpointCycle(**shared)
        self.work = Dispatcher(
            **shared,
            sizes=sizes,
            outcome=outcome,
            epochs=self.epochs,
            evaluations=self.evaluations,
            unreadable=unreadable,
            failed_workers=self.failed,
            at_barrier=lambda: self.cycle.barrier is not None,
            recovering=lambda: self.reclaim.is_collecting,
        )
        self.data = ProgramDatasets(**shared, sizes=sizes, outcome=outcome)
        self.completion = ProgramCompletion(
            ledger=ledger, roster=self.roster, outcome=outcome, datasets=self.data
        )
        self.steps = TrainingSteps(
            ledger=ledger,
            roster=self.roster,
            dispatcher=self.work,
            generation=self.model,
            announced=self.data.announced,
        )
        self.placing = BucketPlacement(
            settings=plan,
            roster=self.roster,
            outcome=outcome,
            generation=lambda: self.model.number,
            frozen=self._has_snapshot,
        )
        self.rollback = Rollback(
            settings=plan,
            ledger=ledger,
            sizes=sizes,
            generation=self.model,
            cycle=self.cycle,
            evaluations=self.evaluations,
            dispatcher=self.work,
            epochs=self.epochs,
            task=self.leader_task,
            scoped=(self.reclaim, self.placing, self.steps),
        )
        self.schedule = TrainingSchedule(
            settings=plan,
            ledger=ledger,
            sizes=sizes,
            outcome=outcome,
            generation=self.model,
            cycle=self.cycle,
            evaluations=self.evaluations,
            dispatcher=self.work,
            epochs=self.epochs,
            task=self.leader_task,
            migration_first=lambda: self.placing.has_a_turn,
        )
        self._handlers = self._find_handlers()
        self._settle()

    # -- what others read ------------------------------------------------------------------------------------

    @property
    def outcome(self) -> str:
        return self.ending.result

    @property
    def message(self) -> str:
        return self.ending.message

    @property
    def traceback(self) -> str:
        return self.ending.traceback

    @property
    def last_error(self) -> str:
        return self.ending.last_error

    @property
    def stopping(self) -> str:
        return self.ending.stop_reason

    @property
    def awaits_checkpoint(self) -> bool:
        """A checkpoint has been asked for, and may still be written."""
        return self.cycle.is_requested and not self.epochs.training_over and not self.outcome

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.dataset_sizes.known

    @property
    def generation(self) -> int:
        return self.model.number

    @property
    def restore_from(self) -> str:
        return self.model.restore_from

    @property
    def first_step(self) -> int:
        return self.model.first_step

    @property
    def barrier(self) -> Barrier | None:
        return self.cycle.barrier

    @property
    def saved(self) -> SavedCheckpoint | None:
        return self.cycle.saved

    @property
    def evaluation(self) -> Evaluation | None:
        return self.evaluations.current

    @property
    def results(self) -> list[dict[str, Any]]:
        return self.evaluations.results

    @property
    def results_forgotten(self) -> int:
        return self.evaluations.results_dropped

    @property
    def epochs_ended(self) -> list[dict[str, Any]]:
        return self.epochs.ended

    @property
    def training_over(self) -> bool:
        return self.epochs.training_over

    @property
    def task(self) -> str:
        return self.leader_task.name

    @property
    def task_result(self) -> str:
        return self.leader_task.result

    @property
    def is_recovering(self) -> bool:
        """The journal was lost: what the state says is old until workers have reclaimed their shards."""
        return self.reclaim.is_collecting

    def _has_snapshot(self) -> bool:
        """A snapshot of the model is where the buckets are, or is about to be taken."""
        return self.cycle.phase is not CheckpointPhase.TRAINING or self.evaluations.current is not None

    # -- applying commands -----------------------------------------------------------------------------------

    def _find_handlers(self) -> dict[type[Command[Any]], Callable[[Any], Any]]:
        """The handler of each command."""
        handlers: list[Handler] = [
            AssignAddresses.handled_by(self._assign_addresses),
            JoinNode.handled_by(self._join),
            ObserveNode.handled_by(self._observe),
            VacateNode.handled_by(self._vacate),
            ReportFailure.handled_by(self._report_failure),
            ReportHungNode.handled_by(self._report_hung_node),
            ScaleRole.handled_by(self._scale),
            FinishTask.handled_by(self.schedule.finish_task),
            AddRemarks.handled_by(self._add_remarks),
            StopJob.handled_by(self._stop),
            ResumeJob.handled_by(self._resume),
            AnnounceDataset.handled_by(self.schedule.announce),
            LeaseShards.handled_by(self.work.lease),
            ReportProgress.handled_by(self.work.report),
            TruncateLease.handled_by(self.work.truncate),
            StartFromCheckpoint.handled_by(self.schedule.start_from_checkpoint),
            ReachBarrier.handled_by(self.cycle.reach),
            RequestCheckpoint.handled_by(self.schedule.request_checkpoint),
            PassBarrier.handled_by(self._pass_barrier),
            FailCheckpoint.handled_by(self.schedule.fail_checkpoint),
            FinishCheckpoint.handled_by(self.schedule.finish_checkpoint),
            ReportEvaluation.handled_by(self.evaluations.report),
            ClaimEvaluation.handled_by(self.evaluations.claim),
            FinishEvaluation.handled_by(self.evaluations.finish),
            OpenDataset.handled_by(self.data.open),
            FailShard.handled_by(self.data.fail_shard),
            ReturnLeases.handled_by(self.data.return_leases),
            RevokeLeases.handled_by(self.data.revoke_leases),
            ResetDataset.handled_by(self.data.reset),
            RestoreShards.handled_by(self.data.restore_shards),
            HoldTrainingState.handled_by(self.steps.hold),
            ReleaseTrainingState.handled_by(self.steps.release),
            AdvanceSteps.handled_by(self.steps.advance),
            AdvanceMigration.handled_by(self.placing.advance),
            RebalanceBuckets.handled_by(self.placing.rebalance),
            ReplanBuckets.handled_by(self.placing.replan),
            AdoptBucketMap.handled_by(self._adopt_bucket_map),
            RenumberBucketMap.handled_by(self.placing.renumber),
            StartReclaim.handled_by(self.reclaim.start),
            AdoptNode.handled_by(self.reclaim.adopt),
            SkipNodeNumber.handled_by(self.reclaim.skip_number),
            RaiseGeneration.handled_by(self.reclaim.raise_generation),
            ReclaimShards.handled_by(self.reclaim.take_report),
            FinishReclaim.handled_by(self.reclaim.finish),
        ]
        return dict(handlers)

    @property
    def handled(self) -> frozenset[type[Command[Any]]]:
        """The commands that have a handler: all that are registered."""
        return frozenset(self._handlers)

    def apply(self, command: Command[R]) -> R:
        """Applies the command, then what follows from the new state. Raises, and changes nothing, if it is refused."""
        result: R = self._handlers[type(command)](command)
        # The shards of a program decide nothing about its nodes, nor about its end; and there are many of these.
        if not (command.frequent and self.plan.runs_command):
            self._settle(fills_places=not isinstance(command, _KEEP_PLACES))
        return result

    def _settle(self, *, fills_places: bool = True) -> None:
        """Moves the state on as far as it goes by itself. `fills_places`: there may be a place without a node."""
        if self.reclaim.is_collecting and not self.outcome:
            # The report is old: nothing follows from it.
            return
        # First, as a barrier may have to wait for it.
        self.placing.settle()
        if not self.outcome:
            if self.plan.runs_command:
                self.completion.settle()
            else:
                self.schedule.settle()
        self.roster.closing = bool(self.outcome)
        if fills_places:
            self.roster.wanted()

    def _pass_barrier(self, command: PassBarrier) -> None:
        if self.schedule.pass_barrier(command):
            self.placing.copied()

    def _adopt_bucket_map(self, command: AdoptBucketMap) -> None:
        if not self.placing.adopt(command):
            self.rollback.run()

    # -- nodes -----------------------------------------------------------------------------------------------

    def _assign_addresses(self, command: AssignAddresses) -> None:
        self.addresses = command.addresses

    def _join(self, command: JoinNode) -> bool:
        taken = self.roster.join(command.node, command.incarnation, command.address)
        if taken and self.roster.nodes[command.node].role == "ps":
            self.placing.joined()
        return taken

    def _observe(self, command: ObserveNode) -> None:
        what = self._interpreted(command.status)
        node, failure = self.roster.observe(what)
        if node is None:
            return
        if self.plan.runs_command:
            self.completion.node_ended(node)
        elif node.role == "worker":
            self._worker_ended(node, command)
        if failure is not None:
            self.ending.fail(failure, self.last_error or what.message)
        elif self._loses_model(node) and not self.outcome:
            self.rollback.run()

    def _loses_model(self, node: Node) -> bool:
        """A node has ended. Returns True if it had the only copy of a part of the model."""
        if self.training_over and self.task != EXPORT:
            return False
        if node.role == "ps":
            return self.placing.lost(node)
        if self.plan.allreduce:
            return self.steps.forget(node)
        # The worker's own model is worth nothing before its first batch is done.
        return self.plan.worker_owns_state and (self.ledger.steps > 0 or self.generation > 1)

    def _vacate(self, command: VacateNode) -> None:
        self.roster.vacate(self._interpreted(command.status))

    def _interpreted(self, status: NodeStatus) -> NodeStatus:
        if status.reason is EndReason.STOPPED and status.name in self.failed:
            # It had reported its error, and was stopped because it did not exit by itself.
            return replace(status, reason=EndReason.ERROR)
        return status

    def _worker_ended(self, node: Node, end: ObserveNode) -> None:
        if TRAINING in self.ledger.datasets():
            if end.credit is not None:
                self.ledger.credit(TRAINING, node.name, **vars(end.credit))
            if end.partial is not None:
                self.ledger.credit_partial(TRAINING, node.name, **vars(end.partial))
            if end.in_doubt:
                self.ledger.doubt(TRAINING, node.name)
        failed = self.failed.pop(node.name, WorkerError())
        try:
            self.ledger.forget_worker(node.name, failed_lease=failed.lease_id or None)
        except ShardGivesUp as gives_up:
            self.ending.fail(JobFailure(message=f"{gives_up}\n{failed.message}"), failed.traceback)
        self.work.forget_worker(node.name)
        self.cycle.forget_worker(node.name)
        self.evaluations.forget_worker(node.name)

    def _scale(self, command: ScaleRole) -> None:
        role, target = command.role, command.target
        if role == "ps":
            # Surplus servers exit when their buckets are elsewhere.
            self.roster.targets[role] = target
            self.placing.scaled()
        else:
            self.roster.scale(role, target, victims=command.victims)

    # -- the end ---------------------------------------------------------------------------------------------

    def _add_remarks(self, command: AddRemarks) -> None:
        lines = [line[:_REMARK_LENGTH] for line in command.remarks]
        new = [line for line in lines if line not in self.remarks]
        self.remarks = (self.remarks + new)[:_REMARKS]

    def _report_failure(self, command: ReportFailure) -> None:
        """A node's own error. The node exits after it; what that means is decided when the platform says
        so.

        A worker may have pushed more to the parameter servers than it has reported, and pushes may be in flight
        to them. So its shards go to others only when it has ended, and has been credited with that.
        """
        node, message, traceback = command.node, command.message, command.traceback
        self.ending.note_error(traceback or message)
        if command.kind in ("definition", "data"):
            self.ending.fail(JobFailure(message=message), traceback)
            return
        known = self.roster.nodes.get(node)
        if self.plan.servers and known is not None and known.alive:
            self.failed[node] = WorkerError(lease_id=command.lease_id, message=message, traceback=traceback)
            return
        try:
            self.ledger.release_worker(node, failed_lease=command.lease_id or None)
        except ShardGivesUp as gives_up:
            self.ending.fail(JobFailure(message=f"{gives_up}\n{message}"), traceback)

    def _report_hung_node(self, command: ReportHungNode) -> None:
        """A node that does nothing has failed, though it has not ended: a program that has not asked for data, or a
        node of ours that has not joined.
        """
        node = command.node
        failed = self.roster.nodes.get(node)
        if failed is None:
            return
        failed.failures += 1
        if command.stalled_seconds and failed.failures > self.roster.max_failures:
            times = "once" if failed.failures == 1 else f"{failed.failures} times"
            self.ending.fail(
                JobFailure(
                    message=f"{node} stalled for {command.stalled_seconds:.0f} s: it holds shards and finishes no "
                    f"batch. This worker has now failed {times} "
                    f"(--relaunch_on_worker_failure={self.roster.max_failures}). Its log shows where it waits"
                ),
                "",
            )
        elif failed.failures > self.roster.max_failures:
            self.ending.fail(
                JobFailure(
                    message=f"{node} has {'asked for no data' if self.plan.runs_command else 'not joined the job'} "
                    f"within {self.plan.start_timeout_seconds:g} s of its start "
                    "(--start_timeout_seconds), nor have those that it replaces"
                ),
                "",
            )

    def _stop(self, command: StopJob) -> None:
        self.ending.stop(command.reason)

    def _resume(self, command: ResumeJob) -> None:
        resume(self, command)

    def forget_errors(self) -> None:
        """Errors that workers have reported, of an attempt that is over."""
        self.failed.clear()

    # -- what it amounts to ----------------------------------------------------------------------------------

    def leader(self) -> Node | None:
        """The worker that does what only one must do: the oldest, of those that have the model if it is in workers."""
        return self.steps.leader() or self.roster.leader()

    def ps_addresses(self) -> list[str]:
        """Returns the addresses of the parameter servers by slot, empty for those without buckets; none before all have
        joined.
        """
        return _by_slot({slot: node.address for slot, node in self.placing.holders().items()})

    def ps_incarnations(self) -> list[str]:
        return _by_slot({slot: node.incarnation for slot, node in self.placing.holders().items()})

    # -- journal ---------------------------------------------------------------------------------------------

    def _parts(self) -> list[_Part]:
        """Components whose fields are at the top level of the snapshot."""
        return [
            self.ending,
            self.model,
            self.cycle,
            self.evaluations,
            self.epochs,
            self.leader_task,
            self.work,
        ]

    def snapshot(self) -> dict[str, Any]:
        snapshot: dict[str, Any] = {
            "form": FORM,
            "addresses": self.addresses,
            "sizes": dict(self.sizes),
            "failed": {name: asdict(error) for name, error in self.failed.items()},
            "remarks": self.remarks,
            "ledger": self.ledger.snapshot(),
            "roster": self.roster.snapshot(),
            "data": self.data.snapshot(),
            "steps": self.steps.snapshot(),
            "reclaim": self.reclaim.snapshot(),
            "placing": self.placing.snapshot(),
        }
        for part in self._parts():
            snapshot |= part.snapshot()
        return snapshot

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.addresses = snapshot["addresses"]
        self.dataset_sizes.restore(snapshot["sizes"])
        self.failed.clear()
        self.failed.update((name, WorkerError(**error)) for name, error in snapshot["failed"].items())
        self.remarks = snapshot["remarks"]
        self.ledger.load(snapshot["ledger"])
        self.roster.restore(snapshot["roster"])
        self.data.restore(snapshot["data"])
        self.steps.restore(snapshot["steps"])
        self.reclaim.restore(snapshot["reclaim"])
        self.placing.restore(snapshot["placing"])
        for part in self._parts():
            part.restore(snapshot)


def _by_slot(found: dict[int, str]) -> list[str]:
    return [found.get(slot, "") for slot in range(max(found) + 1)] if found else []
