"""The state of a job, as one deterministic machine.

Every change is a *command*: a method of `JobState`, or of a part of it, called by name with plain values. The master
writes each command to the journal before it answers anybody, and replays them when it comes back; so a command must
depend on nothing but its arguments and the state: no clock, no randomness, no I/O. A command that raises
leaves the state as it was and is not journaled.

After each command the machine settles (`schedule.py`): it looks whether an evaluation or a checkpoint is due, whether
an epoch or the job is over, which nodes are missing. What the outside should do about it is not returned but
can be read off the state at any time (`roster.wanted()`, `cut`, `saving`, `evaluation`, see also `directives.py`),
which is what makes a restart harmless.

Commands that belong together are in a part of their own, which changes this state: shards in `dispatcher.py`, cuts and
checkpoints in `barrier.py`, evaluations in `evaluations.py`, programs of the user's own in `program_datasets.py` and
`training_steps.py`, the map of parameter servers in `bucket_placement.py`, the way back after a lost journal in
`reclaim_round.py`. What the loss of the model means is in `rollback.py`. Here are nodes, and the end.

A cut
    is a moment at which no batch is half done. Evaluations and checkpoints are taken at cuts, so they mean one model
    and one ledger. Waiting for a cut lasts a batch; copying the model is quick; writing and evaluating the copy happen
    while training goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from elasticdl.master.allreduce.training_steps import Steps
from elasticdl.master.checkpointing.barrier import Standstill
from elasticdl.master.checkpointing.barrier_records import Cut, SavedModel, Saving
from elasticdl.master.checkpointing.rollback import lose_model, lost_with
from elasticdl.master.commands.checkpoints import (
    FailCheckpoint,
    FinishCheckpoint,
    PassBarrier,
    ReachBarrier,
    StartFromCheckpoint,
)
from elasticdl.master.commands.command import Command, Handler
from elasticdl.master.commands.evaluations import ClaimEvaluation, FinishEvaluation, ReportEvaluation
from elasticdl.master.commands.job import AddRemarks, FinishTask, StopJob
from elasticdl.master.commands.nodes import (
    AssignAddresses,
    JoinNode,
    ObserveNode,
    PushCredit,
    ReportFailure,
    ReportHungNode,
    ScaleRole,
    VacateNode,
)
from elasticdl.master.commands.placement import (
    AdoptBucketMap,
    AdvanceMigration,
    RebalanceBuckets,
    RenumberBucketMap,
    ReplanBuckets,
)
from elasticdl.master.commands.programs import (
    AdvanceSteps,
    FailShard,
    HoldTrainingState,
    OpenDataset,
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
from elasticdl.master.lifecycle.dispatcher import Work
from elasticdl.master.lifecycle.evaluation import Evaluation
from elasticdl.master.lifecycle.evaluations import Evaluating
from elasticdl.master.lifecycle.roster import JobFailure, Node, Roster
from elasticdl.master.lifecycle.schedule import EPOCH_TASK, settle
from elasticdl.master.programs.completion import node_ended
from elasticdl.master.programs.program_datasets import ProgramData
from elasticdl.master.recovery.reclaim_round import Gathering
from elasticdl.master.servers.bucket_placement import Placing
from elasticdl.master.settings import Plan
from elasticdl.platforms.platform import EndReason, NodeStatus
from elasticdl.ps.checkpoint.checkpoints import SavedFile

R = TypeVar("R")

# A job's record has little room.
_REMARKS = 20
_REMARK_LENGTH = 500
# Of the journal. It grows whenever a command comes to mean something else: what one version wrote, another that applies
# it differently must not replay.
FORM = 4


@dataclass(frozen=True, kw_only=True)
class Failed:
    """What a worker has said of its own end, and on which shard it came to it."""

    lease_id: int = 0
    message: str = ""
    traceback: str = ""


class JobState:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ledger = Ledger()
        self.roster = Roster(
            max_failures=plan.max_node_failures,
            targets=plan.targets,
            run_to_their_end=plan.runs_command,
            replaced_early=plan.replaced_early,
        )
        self.data = ProgramData(self)
        self.steps = Steps(self)
        self.gathering = Gathering(self)
        self.placing = Placing(self)
        self.work = Work(self)
        self.standstill = Standstill(self)
        self.evaluating = Evaluating(self)
        self._handlers = self._find_handlers()
        # Where the nodes of a program find each other, by role: these stay when a node is replaced.
        self.addresses: dict[str, list[str]] = {}
        self.sizes: dict[str, int] = {}
        self.generation = 1
        self.restore_from = ""
        self.first_step = 0
        self.saved: SavedModel | None = None
        self.cuts_passed = 0
        self.cut: Cut | None = None
        self.saving: Saving | None = None
        self.evaluation: Evaluation | None = None
        self.evaluated_mark = 0
        self.saved_mark = 0
        # The epoch whose end has had its cut (evaluation, checkpoint).
        self.cut_epoch = -1
        # The epoch whose end the leader's callbacks have heard of.
        self.told_epoch = -1
        self.epochs_ended: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        # How many there were beside these, as of a master that came back from a snapshot without them.
        self.results_forgotten = 0
        # What workers have told of the model, for the person who started the job.
        self.remarks: list[str] = []
        self.stopping = ""
        self.stop_saved = False
        self.training_over = False
        self.task = ""
        self.task_result = ""
        self.outcome = ""
        self.message = ""
        self.traceback = ""
        self.last_error = ""
        # Workers that have told of an error and have not ended yet. Until they have, what they hold is theirs.
        self.failed: dict[str, Failed] = {}
        self.last_report: dict[str, int] = {}
        self.epoch_loss: dict[int, tuple[float, int]] = {}
        # Shards that idle workers wait for, and from where on: asked of their owners, not yet answered. Not
        # journaled: a proposal forgotten is a proposal made again.
        self.truncations: dict[int, tuple[str, int]] = {}
        settle(self)

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
            FinishTask.handled_by(self._finish_task),
            AddRemarks.handled_by(self._add_remarks),
            StopJob.handled_by(self._stop),
            AnnounceDataset.handled_by(self.work.announce),
            LeaseShards.handled_by(self.work.lease),
            ReportProgress.handled_by(self.work.report),
            TruncateLease.handled_by(self.work.truncate),
            StartFromCheckpoint.handled_by(self._start_from_checkpoint),
            ReachBarrier.handled_by(self.standstill.reach),
            PassBarrier.handled_by(self.standstill.release),
            FailCheckpoint.handled_by(self.standstill.fail),
            FinishCheckpoint.handled_by(self.standstill.finish),
            ReportEvaluation.handled_by(self.evaluating.report),
            ClaimEvaluation.handled_by(self.evaluating.claim),
            FinishEvaluation.handled_by(self.evaluating.finish),
            OpenDataset.handled_by(self.data.open),
            FailShard.handled_by(self.data.fail_shard),
            ReturnLeases.handled_by(self.data.return_leases),
            RevokeLeases.handled_by(self.data.revoke_leases),
            ResetDataset.handled_by(self.data.reset),
            RestoreShards.handled_by(self.data.restore_shards),
            HoldTrainingState.handled_by(self.steps.hold),
            AdvanceSteps.handled_by(self.steps.advance),
            AdvanceMigration.handled_by(self.placing.advance),
            RebalanceBuckets.handled_by(self.placing.rebalance),
            ReplanBuckets.handled_by(self.placing.replan),
            AdoptBucketMap.handled_by(self.placing.adopt),
            RenumberBucketMap.handled_by(self.placing.renumber),
            StartReclaim.handled_by(lambda c: self.gathering.reopen(lineage=c.lineage, saved=c.saved)),
            AdoptNode.handled_by(lambda c: self.gathering.adopt(node=c.node, place=c.place)),
            SkipNodeNumber.handled_by(lambda c: self.gathering.skip_number(role=c.role, number=c.number)),
            RaiseGeneration.handled_by(lambda c: self.gathering.raise_generation(above=c.above)),
            ReclaimShards.handled_by(self._reclaim_shards),
            FinishReclaim.handled_by(lambda c: self.gathering.close()),
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
            settle(self)
        return result

    def _reclaim_shards(self, command: ReclaimShards) -> list[int]:
        return self.gathering.tell(
            worker=command.worker,
            generation=command.generation,
            seen_generation=command.seen_generation,
            cut=command.barrier,
            sizes=command.sizes,
            epochs_ended=command.epochs_ended,
            shards=command.shards,
        )

    # -- nodes -----------------------------------------------------------------------------------------------

    def _start_from_checkpoint(self, command: StartFromCheckpoint) -> None:
        self.saved = SavedModel(path=command.path, step=command.step, ledger=command.ledger)
        self.restore_from = command.path
        self.first_step = command.step

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
            node_ended(self, node)
        elif node.role == "worker":
            self._worker_ended(node, command.credit, in_doubt=command.in_doubt)
        if failure is not None:
            self.fail_job(failure, self.last_error or what.message)
        elif lost_with(self, node) and not self.outcome:
            lose_model(self)

    def _vacate(self, command: VacateNode) -> None:
        self.roster.vacate(self._interpreted(command.status))

    def _interpreted(self, status: NodeStatus) -> NodeStatus:
        if status.reason is EndReason.STOPPED and status.name in self.failed:
            # It had reported its error, and was stopped because it did not exit by itself.
            return replace(status, reason=EndReason.ERROR)
        return status

    def _worker_ended(self, node: Node, credit: PushCredit | None, *, in_doubt: bool) -> None:
        if credit is not None and TRAINING in self.ledger.datasets():
            self.ledger.credit(TRAINING, node.name, **vars(credit))
        if in_doubt and TRAINING in self.ledger.datasets():
            self.ledger.doubt(TRAINING, node.name)
        failed = self.failed.pop(node.name, Failed())
        try:
            self.ledger.forget_worker(node.name, failed_lease=failed.lease_id or None)
        except ShardGivesUp as gives_up:
            self.fail_job(JobFailure(message=f"{gives_up}\n{failed.message}"), failed.traceback)
        self.last_report.pop(node.name, None)
        self.work.forget_proposals(node.name)
        if self.cut is not None and node.name in self.cut.reached:
            self.cut.reached.remove(node.name)
            if self.plan.allreduce:
                # Another one has the same model and writes it.
                self.cut.files.clear()
        if self.evaluation is not None and self.evaluation.finisher == node.name:
            self.evaluation.finisher = ""

    def _scale(self, command: ScaleRole) -> None:
        role, target = command.role, command.target
        if role == "ps":
            # Those that are too many go when what they hold is elsewhere.
            self.roster.targets[role] = target
            self.placing.scaled()
        else:
            self.roster.scale(role, target)

    # -- the end ---------------------------------------------------------------------------------------------

    def _finish_task(self, command: FinishTask) -> None:
        task = command.task
        if self.task != task:
            return
        self.task = ""
        if command.error:
            self.fail_job(JobFailure(message=command.error), "")
        elif task.startswith(EPOCH_TASK):
            self.told_epoch = int(task.removeprefix(EPOCH_TASK))
            if command.result == "stop":
                self.ledger.stop(TRAINING)
        else:
            self.task_result = command.result
            self.outcome = "succeeded"

    def _add_remarks(self, command: AddRemarks) -> None:
        lines = [line[:_REMARK_LENGTH] for line in command.remarks]
        new = [line for line in lines if line not in self.remarks]
        self.remarks = (self.remarks + new)[:_REMARKS]

    def _report_failure(self, command: ReportFailure) -> None:
        """A node's own error. The node exits after it; what that means is decided when the platform says
        so.

        A worker may have pushed more to the parameter servers than it has told, and something may still be on its way
        to them. So its shards go to others only when it has ended, and has been credited with that.
        """
        node, message, traceback = command.node, command.message, command.traceback
        self.last_error = traceback or message
        if command.kind in ("definition", "data"):
            self.fail_job(JobFailure(message=message), traceback)
            return
        known = self.roster.nodes.get(node)
        if self.plan.servers and known is not None and known.alive:
            self.failed[node] = Failed(lease_id=command.lease_id, message=message, traceback=traceback)
            return
        try:
            self.ledger.release_worker(node, failed_lease=command.lease_id or None)
        except ShardGivesUp as gives_up:
            self.fail_job(JobFailure(message=f"{gives_up}\n{message}"), traceback)

    def _report_hung_node(self, command: ReportHungNode) -> None:
        """A node that does nothing has failed, though it has not ended: a program that has not asked for data, or a
        node of ours that has not joined.
        """
        node = command.node
        failed = self.roster.nodes.get(node)
        if failed is None:
            return
        failed.failures += 1
        if failed.failures > self.roster.max_failures:
            self.fail_job(
                JobFailure(
                    message=f"{node} has {'asked for no data' if self.plan.runs_command else 'not joined the job'} "
                    f"within {self.plan.start_timeout_seconds:g} s of its start "
                    "(--start_timeout_seconds), nor have those that it replaces"
                ),
                "",
            )

    def _stop(self, command: StopJob) -> None:
        self.stopping = self.stopping or command.reason

    def fail_job(self, failure: JobFailure, detail: str) -> None:
        """The job has failed; the first reason for it counts."""
        if not self.outcome:
            self.outcome = "failed"
            self.message = failure.message
            self.traceback = detail

    # -- what it amounts to ----------------------------------------------------------------------------------

    def leader(self) -> Node | None:
        """The worker that does what only one must do: the oldest, of those that have the model if it is in workers."""
        return self.steps.leader() or self.roster.leader()

    def ps_addresses(self) -> list[str]:
        """Of the parameter servers by their slots, empty for those that hold nothing; none before all had joined."""
        return _by_slot({slot: node.address for slot, node in self.placing.holders().items()})

    def ps_incarnations(self) -> list[str]:
        return _by_slot({slot: node.incarnation for slot, node in self.placing.holders().items()})

    # -- journal ---------------------------------------------------------------------------------------------

    _PLAIN = (
        "addresses",
        "sizes",
        "generation",
        "restore_from",
        "first_step",
        "cuts_passed",
        "evaluated_mark",
        "saved_mark",
        "cut_epoch",
        "told_epoch",
        "epochs_ended",
        "results",
        "stopping",
        "stop_saved",
        "training_over",
        "task",
        "task_result",
        "outcome",
        "message",
        "traceback",
        "last_error",
        "last_report",
    )

    def snapshot(self) -> dict[str, Any]:
        return {
            "form": FORM,
            **{name: getattr(self, name) for name in self._PLAIN},
            "failed": {name: asdict(failed) for name, failed in self.failed.items()},
            "results_forgotten": self.results_forgotten,
            "remarks": self.remarks,
            "epoch_loss": [[e, s, n] for e, (s, n) in self.epoch_loss.items()],
            "ledger": self.ledger.snapshot(),
            "roster": self.roster.snapshot(),
            "data": self.data.snapshot(),
            "steps": self.steps.snapshot(),
            "gathering": self.gathering.snapshot(),
            "placing": self.placing.snapshot(),
            "saved": asdict(self.saved) if self.saved else None,
            "cut": asdict(self.cut) if self.cut else None,
            "saving": asdict(self.saving) if self.saving else None,
            "evaluation": self.evaluation.snapshot() if self.evaluation else None,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        for name in self._PLAIN:
            setattr(self, name, snapshot[name])
        # Not in the first journals.
        self.failed = {name: Failed(**failed) for name, failed in snapshot.get("failed", {}).items()}
        self.results_forgotten = snapshot.get("results_forgotten", 0)
        self.remarks = snapshot.get("remarks", [])
        self.epoch_loss = {e: (s, n) for e, s, n in snapshot["epoch_loss"]}
        self.ledger = Ledger.restore(snapshot["ledger"])
        self.roster.restore(snapshot["roster"])
        self.data.restore(snapshot["data"])
        self.steps.restore(snapshot["steps"])
        self.gathering.restore(snapshot["gathering"])
        self.placing.restore(snapshot["placing"])
        self.saved = SavedModel(**snapshot["saved"]) if snapshot["saved"] else None
        self.cut = Cut(**_with_files(snapshot["cut"])) if snapshot["cut"] else None
        self.saving = Saving(**_with_files(snapshot["saving"])) if snapshot["saving"] else None
        self.evaluation = Evaluation.restore(snapshot["evaluation"]) if snapshot["evaluation"] else None


def _with_files(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "files": [SavedFile(**file) for file in record["files"]]}


def _by_slot(found: dict[int, str]) -> list[str]:
    return [found.get(slot, "") for slot in range(max(found) + 1)] if found else []
