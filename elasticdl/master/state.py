"""The state of a job, as one deterministic machine.

Every change is a *command*: a method of `JobState` called by name with plain values. The master writes each
command to the journal before it answers anybody, and replays them when it comes back; so a command must
depend on nothing but its arguments and the state: no clock, no randomness, no I/O. A command that raises
leaves the state as it was and is not journaled.

After each command the machine settles (`course.py`): it looks whether an evaluation or a checkpoint is due, whether an
epoch or the job is over, which nodes are missing. What the outside should do about it is not returned but
can be read off the state at any time (`roster.wanted()`, `cut`, `saving`, `evaluation`, see also `directives.py`),
which is what makes a restart harmless.

A cut
    is a moment at which no batch is half done: every worker that holds a shard has reported all it pushed
    and stands still. Evaluations and checkpoints are taken at cuts, so they mean one model and one ledger.
    Waiting for a cut lasts a batch; copying the model is quick; writing and evaluating the copy happen
    while training goes on.

Losing the model
    When a process that holds a part of the model dies (a parameter server, or the only worker where there
    are none), the generation grows: the ledger goes back to the last checkpoint, everybody drops what is
    older, and the audit counts what has to be trained again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from elasticdl.master.course import EPOCH_TASK, at_epoch_end, mark, saved_at_epoch_end, settle
from elasticdl.master.cuts import Cut, SavedModel, Saving
from elasticdl.master.datasets import EVALUATION, PREDICTION, TRAINING
from elasticdl.master.evaluation import Evaluation, JournaledStates
from elasticdl.master.gathering import Gathering
from elasticdl.master.leasing import within_steps
from elasticdl.master.ledger import Lease, Ledger, LedgerError, LostLease, ShardGivesUp
from elasticdl.master.nodes import JobFailure, Node, Roster
from elasticdl.master.placing import Placing
from elasticdl.master.plan import Plan
from elasticdl.master.program_course import node_ended
from elasticdl.master.program_data import ProgramData
from elasticdl.master.steps import Steps
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus


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
        self.stopping = ""
        self.stop_saved = False
        self.training_over = False
        self.task = ""
        self.task_result = ""
        self.outcome = ""
        self.message = ""
        self.traceback = ""
        self.last_error = ""
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
        "announce",
        "lease",
        "report",
        "truncate",
        "reach_cut",
        "cut_taken",
        "cut_failed",
        "checkpoint_done",
        "report_evaluation",
        "claim_evaluation",
        "finish_evaluation",
        "finish_task",
        "fail",
        "hung",
        "scale",
        "stop",
    )

    def apply(self, command: str, arguments: dict[str, Any]) -> Any:
        part, _, name = command.rpartition(".")
        parts = {
            "": self,
            "data": self.data,
            "steps": self.steps,
            "gathering": self.gathering,
            "placing": self.placing,
        }
        owner: Any = parts.get(part)
        if owner is None or name not in owner.COMMANDS:
            raise LedgerError(f"The journal has a command this version does not know: {command!r}.")
        method: Callable[..., Any] = getattr(owner, name)
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
        self, *, status: dict[str, Any], credit: dict[str, int] | None = None, traceback: str = ""
    ) -> None:
        """The platform's word on a node. `credit`: the last batch of a dead worker that all servers have
        applied.
        """
        what = NodeStatus(
            name=status["name"],
            role=status["role"],
            phase=NodePhase(status["phase"]),
            reason=EndReason(status["reason"]),
            exit_code=status["exit_code"],
            message=status["message"],
        )
        node, failure = self.roster.observe(what)
        if node is None:
            return
        if self.plan.runs_command:
            node_ended(self, node)
        elif node.role == "worker":
            self._worker_ended(node, credit)
        if failure is not None:
            self.fail_job(failure, self.last_error or what.message)
        elif self._held_model(node) and not self.outcome:
            self.lose_model()

    def _worker_ended(self, node: Node, credit: dict[str, int] | None) -> None:
        if credit is not None:
            # Not if the batch was reported before, or belongs to a shard that was given up.
            with contextlib.suppress(LedgerError):
                self.ledger.progress(credit["lease_id"], credit["position"], credit["batches"], node.name)
        self.ledger.forget_worker(node.name)
        self.last_report.pop(node.name, None)
        self._forget_truncations(node.name)
        if self.cut is not None and node.name in self.cut.reached:
            self.cut.reached.remove(node.name)
            if self.plan.allreduce:
                # Another one has the same model and writes it.
                self.cut.files.clear()
        if self.evaluation is not None and self.evaluation.finisher == node.name:
            self.evaluation.finisher = ""

    def _held_model(self, node: Node) -> bool:
        if self.training_over and self.task != "export":
            return False
        if node.role == "ps":
            return bool(node.incarnation) and self.placing.lost(node.slot)
        if self.plan.allreduce:
            return self.steps.forget(node.name)
        # The worker's own model is worth nothing before its first batch is done.
        return self.plan.worker_owns_state and (self.ledger.steps > 0 or self.generation > 1)

    def lose_model(self, *, above: int = 0) -> None:
        """Everybody begins again from the last checkpoint, in a new generation, above all that there were."""
        self.generation = max(self.generation, above) + 1
        self.gathering.forget()
        self.placing.forget()
        if self.cut is not None:
            # Some may have reached it already: its number must not come again.
            self.cuts_passed = self.cut.number
            self.cut = None
        self.saving = None
        if self.evaluation is not None:
            self.ledger.remove(self.evaluation.dataset)
            self.evaluation = None
        self.truncations.clear()
        if TRAINING in self.sizes:
            baseline = self.saved.ledger if self.saved else None
            self.ledger.rollback(baseline)
        self.steps.lose()
        for name in self.ledger.datasets():
            if name.startswith(f"{EVALUATION}-"):
                self.ledger.remove(name)
        self.restore_from = self.saved.path if self.saved else ""
        self.first_step = self.saved.step if self.saved else 0
        self.evaluated_mark = mark(self, self.plan.evaluation_steps)
        self.saved_mark = mark(self, self.plan.checkpoint_steps)
        epoch = self.ledger.epoch(TRAINING) if TRAINING in self.sizes else 0
        # A checkpoint of the end of an epoch is behind that end, unless its evaluation was lost on the way.
        evaluated = not self.plan.evaluates or any(r["epoch"] == epoch for r in self.results)
        behind = TRAINING in self.sizes and at_epoch_end(self) and evaluated
        ended = epoch if behind else epoch - 1
        self.cut_epoch = min(self.cut_epoch, ended)
        self.told_epoch = min(self.told_epoch, ended)
        self.epochs_ended = [e for e in self.epochs_ended if e["epoch"] < epoch]
        self.training_over = False
        self.task = ""

    def scale(self, *, role: str, target: int) -> None:
        if role == "ps":
            # Those that are too many go when what they hold is elsewhere.
            self.roster.targets[role] = target
            self.placing.scaled()
        else:
            self.roster.scale(role, target)

    # -- data ------------------------------------------------------------------------------------------------

    def announce(self, *, dataset: str, size: int) -> None:
        known = self.sizes.get(dataset)
        if known is not None and known != size:
            raise LedgerError(
                f"The {dataset} data has {size} samples for one worker and {known} for another. "
                "All workers must see the same files."
            )
        if known is not None:
            return
        self.sizes[dataset] = size
        if dataset == TRAINING:
            self.ledger.add(self.plan.dataset(TRAINING, size))
            if self.saved is not None and self.saved.ledger is not None:
                self.ledger.rollback(self.saved.ledger)
                self.cut_epoch = self.told_epoch = self.ledger.epoch(TRAINING) - 1
                self.evaluated_mark = mark(self, self.plan.evaluation_steps)
                self.saved_mark = mark(self, self.plan.checkpoint_steps)
        elif dataset == PREDICTION:
            self.ledger.add(self.plan.single_pass(PREDICTION, size))
        elif self.plan.kind == "evaluate":
            self.begin_evaluation(number=1, epoch=-1)

    def _ledger_name(self, dataset: str) -> str:
        return self.evaluation.dataset if dataset == EVALUATION and self.evaluation else dataset

    def may_lease(self, dataset: str, worker: str, request_id: int) -> bool:
        """There is something to hand out to this worker now, or it asks again for what it was given."""
        name = self._ledger_name(dataset)
        if name not in self.ledger.datasets() or self.outcome or self.gathering.active:
            return False
        if name == TRAINING and (self.cut is not None or self.stopping):
            return False
        node = self.roster.nodes.get(worker)
        if node is None or not node.joined or node.draining:
            return False
        return self.ledger.leasable(name) or self.ledger.answered(name, worker, request_id)

    def lease(self, *, dataset: str, worker: str, count: int, request_id: int) -> list[Lease]:
        """Only after `may_lease`, which is not journaled."""
        name = self._ledger_name(dataset)
        leases = self.ledger.lease(name, worker, count, request_id)
        if name == TRAINING and self.plan.max_step:
            return within_steps(self.ledger, leases, self.plan.max_step)
        return leases

    def finished(self, dataset: str) -> bool:
        """No shard of it will be handed out any more."""
        if self.outcome or self.stopping:
            return True
        if dataset == TRAINING:
            return self.training_over
        if dataset == EVALUATION:
            return self.evaluation is None
        return dataset in self.ledger.datasets() and self.ledger.finished(dataset)

    def report(
        self,
        *,
        worker: str,
        report_id: int,
        progress: list[tuple[int, int, int, bool]],
        bad: list[dict[str, Any]],
        loss_sum: float,
        loss_batches: int,
        stop_training: bool,
    ) -> list[int]:
        """Returns the leases that are not that worker's any more."""
        # Before the progress that passes them, which may end the epoch.
        self._mark_bad(bad)
        lost = []
        for lease_id, position, batches, atomic in progress:
            try:
                self.ledger.progress(lease_id, position, batches, worker, atomic=atomic)
            except LostLease:
                lost.append(lease_id)
        if report_id > self.last_report.get(worker, 0):
            self.last_report[worker] = report_id
            if TRAINING in self.sizes:
                epoch = self.ledger.epoch(TRAINING)
                total, count = self.epoch_loss.get(epoch, (0.0, 0))
                self.epoch_loss = {epoch: (total + loss_sum, count + loss_batches)}
        if stop_training and TRAINING in self.sizes:
            self.ledger.stop(TRAINING)
        return lost

    def _mark_bad(self, bad: list[dict[str, Any]]) -> None:
        for item in bad:
            self.ledger.mark_bad(**item)
        skipped = sum(self.ledger.skipped(name) for name in self.ledger.datasets())
        if bad and skipped > self.plan.max_bad_records:
            where = "; ".join(f"{item['where']}: {item['reason']}" for item in bad[:3])
            self.fail_job(
                JobFailure(
                    message=f"{skipped} samples cannot be read, --max_bad_records allows "
                    f"{self.plan.max_bad_records}. The newest: {where}"
                ),
                "",
            )

    def truncate(self, *, worker: str, lease_id: int, end: int) -> None:
        self.truncations.pop(lease_id, None)
        self.ledger.truncate(lease_id, worker, end)

    def propose_split(self, dataset: str, idle: str) -> bool:
        """Asks a busy worker to give up a part of its work for an idle one. Not a command: see
        `truncations`.
        """
        if self.cut is not None or self.gathering.active:
            return False
        name = self._ledger_name(dataset)
        if name not in self.ledger.datasets():
            return False
        held = {lease.lease_id for lease in self.ledger.held(name)}
        self.truncations = {k: v for k, v in self.truncations.items() if k in held}
        proposal = self.ledger.split(name, idle, exclude=self.truncations)
        if proposal is None:
            return False
        self.truncations[proposal.lease_id] = (proposal.worker, proposal.new_end)
        return True

    def _forget_truncations(self, worker: str) -> None:
        self.truncations = {k: v for k, v in self.truncations.items() if v[0] != worker}

    # -- cuts, checkpoints, evaluations ----------------------------------------------------------------------

    def reach_cut(self, *, worker: str, cut: int, files: list[dict[str, Any]]) -> None:
        if self.cut is not None and self.cut.number == cut and worker not in self.cut.reached:
            self.cut.reached.append(worker)
            self.cut.files += files

    def cut_complete(self) -> bool:
        """Everybody who might be in the middle of a batch stands still."""
        if self.cut is None:
            return False
        workers = [n for n in self.roster.alive("worker") if n.incarnation]
        if self.plan.allreduce or (self.plan.worker_owns_state and self.cut.save):
            # Where all have the same model, the first of them stands still when all do.
            return any(n.name in self.cut.reached for n in workers)
        return all(
            n.name in self.cut.reached
            or not any(lease.dataset == TRAINING for lease in self.ledger.held_by(n.name))
            for n in workers
        )

    def cut_taken(self, *, cut: int) -> None:
        """The model has been frozen: training may go on."""
        if self.cut is None or self.cut.number != cut:
            return
        taken, self.cut = self.cut, None
        self.cuts_passed = cut
        at_end = at_epoch_end(self)
        epoch = self.ledger.epoch(TRAINING)
        evaluate = taken.evaluate
        if at_end:
            # It may have been asked for inside of the epoch, for one of the two: the end of an epoch is owed both.
            saved = taken.save or not saved_at_epoch_end(self)
            if saved and (taken.evaluate or not self.plan.evaluates or self.evaluation is None):
                self.cut_epoch = epoch
                evaluate = self.plan.evaluates and not self.stopping
            else:
                evaluate = False
        if taken.save:
            self.saving = Saving(
                cut=cut,
                step=self.ledger.steps,
                epoch=epoch,
                ledger=self.ledger.snapshot(),
                files=taken.files,
            )
            self.saved_mark = mark(self, self.plan.checkpoint_steps)
        if evaluate:
            self.evaluated_mark = mark(self, self.plan.evaluation_steps)
            self.begin_evaluation(number=cut, epoch=epoch if at_end else -1)

    def cut_failed(self, *, cut: int, message: str) -> None:
        """The model could not be written: a full disk, most likely."""
        self.fail_job(JobFailure(message=f"A checkpoint could not be written: {message}"), "")

    def checkpoint_done(self, *, cut: int, path: str, error: str = "") -> None:
        if self.saving is None or self.saving.cut != cut:
            return
        if error:
            self.cut_failed(cut=cut, message=error)
            return
        self.saved = SavedModel(path=path, step=self.saving.step, ledger=self.saving.ledger)
        self.saving = None
        self.stop_saved = bool(self.stopping)

    def begin_evaluation(self, *, number: int, epoch: int) -> None:
        size = self.sizes.get(EVALUATION, 0)
        self.evaluation = Evaluation(number=number, step=self.ledger.steps, epoch=epoch)
        workers = len(self.roster.alive("worker"))
        self.ledger.add(self.plan.single_pass(self.evaluation.dataset, size, workers=workers))

    def report_evaluation(
        self,
        *,
        worker: str,
        evaluation: int,
        lease_id: int,
        states: JournaledStates,
        bad: list[dict[str, Any]],
    ) -> None:
        if self.evaluation is None or self.evaluation.number != evaluation:
            return
        held = {lease.lease_id: lease for lease in self.ledger.held_by(worker)}
        if lease_id not in held:
            return
        self._mark_bad([{**item, "dataset": self.evaluation.dataset} for item in bad])
        self.ledger.progress(lease_id, held[lease_id].end, 0, worker)
        self.evaluation.add(states)

    def evaluation_to_finish(self) -> bool:
        return (
            self.evaluation is not None
            and not self.evaluation.finisher
            and self.ledger.finished(self.evaluation.dataset)
        )

    def claim_evaluation(self, *, worker: str, evaluation: int) -> bool:
        current = self.evaluation
        if current is None or current.number != evaluation or not self.ledger.finished(current.dataset):
            return False
        if current.finisher not in ("", worker):
            return False
        current.finisher = worker
        return True

    def finish_evaluation(self, *, evaluation: int, metrics: dict[str, float]) -> bool:
        """True if these are the values of the evaluation under way, told for the first time."""
        current = self.evaluation
        if current is None or current.number != evaluation:
            return False
        self.evaluation = None
        if self.plan.kind == "train":
            self.ledger.remove(current.dataset)
        # The same step again: the model was lost after it and trained up to it once more.
        self.results = [r for r in self.results if r["step"] != current.step]
        self.results.append({"step": current.step, "epoch": current.epoch, "metrics": metrics})
        return True

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

    def fail(self, *, node: str, kind: str, message: str, traceback: str, lease_id: int) -> None:
        """A node's own error. The node exits after it; what that means is decided when the platform says
        so.
        """
        self.last_error = traceback or message
        if kind in ("definition", "data"):
            self.fail_job(JobFailure(message=message), traceback)
            return
        try:
            self.ledger.release_worker(node, failed_lease=lease_id or None)
        except ShardGivesUp as gives_up:
            self.fail_job(JobFailure(message=f"{gives_up}\n{message}"), traceback)

    def hung(self, *, node: str) -> None:
        """A program that does nothing has failed, though it has not ended."""
        failed = self.roster.nodes.get(node)
        if failed is None:
            return
        failed.failures += 1
        if failed.failures > self.roster.max_failures:
            self.fail_job(
                JobFailure(
                    message=f"{node} has asked for no data within {self.plan.start_timeout_seconds:g} s of its start "
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
            **{name: getattr(self, name) for name in self._PLAIN},
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
