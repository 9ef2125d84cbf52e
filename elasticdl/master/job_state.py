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

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from elasticdl.master.allreduce.training_steps import Steps
from elasticdl.master.checkpointing.barrier import Standstill
from elasticdl.master.checkpointing.barrier_records import Cut, SavedModel, Saving
from elasticdl.master.checkpointing.rollback import lose_model, lost_with
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.ledger.ledger import Ledger, LedgerError, ShardGivesUp
from elasticdl.master.lifecycle.dispatcher import Work
from elasticdl.master.lifecycle.evaluation import Evaluation
from elasticdl.master.lifecycle.evaluations import Evaluating
from elasticdl.master.lifecycle.roster import JobFailure, Node, Roster
from elasticdl.master.lifecycle.schedule import EPOCH_TASK, settle
from elasticdl.master.programs.program_completion import node_ended
from elasticdl.master.programs.program_datasets import ProgramData
from elasticdl.master.recovery.reclaim_round import Gathering
from elasticdl.master.servers.bucket_placement import Placing
from elasticdl.master.settings import Plan
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus

# A job's record has little room.
_REMARKS = 20
_REMARK_LENGTH = 500
# Of the journal. It grows whenever a command comes to mean something else: what one version wrote, another that applies
# it differently must not replay.
FORM = 3


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
        self._commands = self._find_commands()
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

    COMMANDS = (
        "begin",
        "address",
        "join",
        "observe",
        "vacate",
        "finish_task",
        "remark",
        "fail",
        "hung",
        "scale",
        "stop",
    )

    def _find_commands(self) -> dict[str, Callable[..., Any]]:
        """By the names that they have in the journal."""
        # The parts without a name were one with this in the first journals.
        parts: list[tuple[str, Any]] = [
            ("", self),
            ("", self.work),
            ("", self.standstill),
            ("", self.evaluating),
            ("data.", self.data),
            ("steps.", self.steps),
            ("gathering.", self.gathering),
            ("placing.", self.placing),
        ]
        return {f"{part}{name}": getattr(owner, name) for part, owner in parts for name in owner.COMMANDS}

    def apply(self, command: str, arguments: dict[str, Any]) -> Any:
        method = self._commands.get(command)
        if method is None:
            raise LedgerError(f"The journal has a command this version does not know: {command!r}.")
        result = method(**arguments)
        # The shards of a program decide nothing about its nodes, nor about its end; and there are many of these.
        if not (self.plan.runs_command and command in ("lease", "report")):
            settle(self)
        return result

    # -- nodes -----------------------------------------------------------------------------------------------

    def begin(self, *, path: str, step: int, ledger: dict[str, Any] | None) -> None:
        """The job starts from a checkpoint."""
        self.saved = SavedModel(path=path, step=step, ledger=ledger)
        self.restore_from = path
        self.first_step = step

    def address(self, *, addresses: dict[str, list[str]]) -> None:
        self.addresses = addresses

    def join(self, *, node: str, incarnation: str, address: str) -> bool:
        taken = self.roster.join(node, incarnation, address)
        if taken and self.roster.nodes[node].role == "ps":
            self.placing.joined()
        return taken

    def observe(
        self,
        *,
        status: dict[str, Any],
        credit: dict[str, int] | None = None,
        in_doubt: bool = False,
        traceback: str = "",
    ) -> None:
        """The platform's word on a node. `credit`: the last batch of a dead worker that all servers have
        applied; all those before it they have applied, too. `in_doubt`: they may have, but could not say so.
        """
        what = self._understood(status)
        node, failure = self.roster.observe(what)
        if node is None:
            return
        if self.plan.runs_command:
            node_ended(self, node)
        elif node.role == "worker":
            self._worker_ended(node, credit, in_doubt=in_doubt)
        if failure is not None:
            self.fail_job(failure, self.last_error or what.message)
        elif lost_with(self, node) and not self.outcome:
            lose_model(self)

    def vacate(self, *, status: dict[str, Any]) -> None:
        """A worker has ended. What it is credited with the parameter servers have yet to say, and until then what it
        holds is its own; its place is another's at once.
        """
        self.roster.vacate(self._understood(status))

    def _understood(self, status: dict[str, Any]) -> NodeStatus:
        what = NodeStatus(
            name=status["name"],
            role=status["role"],
            phase=NodePhase(status["phase"]),
            reason=EndReason(status["reason"]),
            exit_code=status["exit_code"],
            message=status["message"],
            gets_more_memory=bool(status.get("gets_more_memory")),
        )
        if what.reason is EndReason.STOPPED and what.name in self.failed:
            # It had told of its error, and was stopped because it did not end by itself.
            return replace(what, reason=EndReason.ERROR)
        return what

    def _worker_ended(self, node: Node, credit: dict[str, int] | None, *, in_doubt: bool) -> None:
        if credit is not None and TRAINING in self.ledger.datasets():
            self.ledger.credit(TRAINING, node.name, **credit)
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

    def scale(self, *, role: str, target: int, victims: Sequence[str] = ()) -> None:
        if role == "ps":
            # Those that are too many go when what they hold is elsewhere.
            self.roster.targets[role] = target
            self.placing.scaled()
        else:
            self.roster.scale(role, target, victims=victims)

    # -- the end ---------------------------------------------------------------------------------------------

    def finish_task(self, *, task: str, result: str, error: str) -> None:
        if self.task != task:
            return
        self.task = ""
        if error:
            self.fail_job(JobFailure(message=error), "")
        elif task.startswith(EPOCH_TASK):
            self.told_epoch = int(task.removeprefix(EPOCH_TASK))
            if result == "stop":
                self.ledger.stop(TRAINING)
        else:
            self.task_result = result
            self.outcome = "succeeded"

    def remark(self, *, remarks: list[str]) -> None:
        new = [line[:_REMARK_LENGTH] for line in remarks if line[:_REMARK_LENGTH] not in self.remarks]
        self.remarks = (self.remarks + new)[:_REMARKS]

    def fail(self, *, node: str, kind: str, message: str, traceback: str, lease_id: int) -> None:
        """A node's own error. The node exits after it; what that means is decided when the platform says
        so.

        A worker may have pushed more to the parameter servers than it has told, and something may still be on its way
        to them. So its shards go to others only when it has ended, and has been credited with that.
        """
        self.last_error = traceback or message
        if kind in ("definition", "data"):
            self.fail_job(JobFailure(message=message), traceback)
            return
        known = self.roster.nodes.get(node)
        if self.plan.servers and known is not None and known.alive:
            self.failed[node] = Failed(lease_id=lease_id, message=message, traceback=traceback)
            return
        try:
            self.ledger.release_worker(node, failed_lease=lease_id or None)
        except ShardGivesUp as gives_up:
            self.fail_job(JobFailure(message=f"{gives_up}\n{message}"), traceback)

    def hung(self, *, node: str) -> None:
        """A node that does nothing has failed, though it has not ended: a program that has not asked for data, or a
        node of ours that has not joined.
        """
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

    def stop(self, *, reason: str) -> None:
        self.stopping = self.stopping or reason

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
        self.cut = Cut(**snapshot["cut"]) if snapshot["cut"] else None
        self.saving = Saving(**snapshot["saving"]) if snapshot["saving"] else None
        self.evaluation = Evaluation.restore(snapshot["evaluation"]) if snapshot["evaluation"] else None


def _by_slot(found: dict[int, str]) -> list[str]:
    return [found.get(slot, "") for slot in range(max(found) + 1)] if found else []
