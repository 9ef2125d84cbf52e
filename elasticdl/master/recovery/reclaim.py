"""The state of a recovery: what workers have reclaimed since the master lost its journal.

The master restored a snapshot that is some seconds old. Since then workers have done samples, got shards, finished
epochs; the snapshot lacks all of it, and the workers know it. Each reports when it finds a master of another *lineage*:
the shards of about the last minute with how far it got, those it holds, and the newest directive it had. While these
reports are collected no shard is leased, no checkpoint is taken and no node is replaced; workers go on with their
leases.

What is reported done is done. A reported lease is renewed. What was leased and no worker reports is requeued, and the
audit lists it as trained again. Numbers (of leases, of barriers) continue far above those of the snapshot, so that none
is used twice.

Failure modes
    A worker that died with the master reports nothing: what it did since the snapshot is trained again. A worker that
    reports too late loses its leases. If the model was lost between the snapshot and the end of the previous master, a
    worker reports a higher generation, and the job rolls back to its last checkpoint.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elasticdl.master.checkpointing.barrier_records import SavedModel
from elasticdl.master.checkpointing.rollback import lose_model
from elasticdl.master.dataset_names import EVALUATION, TRAINING
from elasticdl.master.ledger.ledger import Lease, LedgerError
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.recovery import ledger_reclaim
from elasticdl.platforms.platform import NodePhase

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState

# More than can be leased between two snapshots; few enough for 32 bits after a thousand restarts.
_LEASES_SKIPPED = 1_000_000
_CUTS_SKIPPED = 1_000


class ReclaimPhase(enum.Enum):
    """NOT_NEEDED → COLLECTING → DONE, and COLLECTING again if the journal is lost once more."""

    # The journal of this job has never been lost.
    NOT_NEEDED = "not needed"
    # Workers report what they hold and have done.
    COLLECTING = "collecting"
    # The reports are in the ledger; the job goes on.
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class ReportedShard:
    """One shard as its worker remembers it."""

    lease_id: int
    dataset: str
    epoch: int
    start: int
    # Done up to here.
    position: int
    end: int
    batches: int
    atomic: bool = False
    # It is being worked on; else it is over, and what is not done of it was given up.
    held: bool = False


class Reclaim:
    """Part of the job's state: changed by commands only, which the journal replays."""

    COMMANDS = ("reopen", "adopt", "skip_number", "raise_generation", "tell", "close")

    def __init__(self, state: JobState) -> None:
        self._state = state
        # The same for masters that continue one journal; a new one begins when the journal is lost.
        self.lineage = ""
        self.phase = ReclaimPhase.NOT_NEEDED
        # The workers that have reported.
        self.reported: list[str] = []
        # The workers whose reports are needed to know all that was done.
        self._expected: list[str] = []
        # From the snapshot: the batches of each lease, and the next lease number.
        self._snapshot_batches: dict[int, int] = {}
        self._snapshot_next_lease = 0
        # What was leased and may have been done, (epoch, start, end) by data set: counted as trained again if it is
        # still queued in the end.
        self._unclaimed: dict[str, list[tuple[int, int, int]]] = {}

    # -- commands --------------------------------------------------------------------------------------------

    def reopen(self, *, lineage: str, saved: dict[str, Any] | None) -> None:
        """Starts collecting, after an old snapshot was restored. `saved`: the checkpoint to roll back to if need be."""
        state = self._state
        self.lineage = lineage
        self.phase = ReclaimPhase.COLLECTING
        self.reported = []
        self._expected = [node.name for node in state.roster.alive("worker") if node.incarnation]
        state.saved = SavedModel(**saved) if saved is not None else None
        self._redo_cut()
        state.truncations.clear()
        if not self._snapshot_next_lease:
            self._snapshot_next_lease = state.ledger.next_lease
        for lease_id, lease in ledger_reclaim.reopen(state.ledger, _LEASES_SKIPPED).items():
            self._snapshot_batches[lease_id] = lease.batches
            self._add_unclaimed(lease.dataset, [(lease.epoch, lease.position, lease.end)])

    def _redo_cut(self) -> None:
        """Starts a barrier, a checkpoint or an evaluation again that was under way: it may be over, or void."""
        state = self._state
        number = state.cut.number if state.cut is not None else state.cuts_passed
        begun = state.saving is not None or state.evaluation is not None
        if state.saving is not None and state.plan.checkpoint_steps:
            state.saved_mark -= 1
        if state.evaluation is not None:
            if state.plan.evaluation_steps:
                state.evaluated_mark -= 1
            state.ledger.remove(state.evaluation.dataset)
        state.cut = state.saving = state.evaluation = None
        state.cuts_passed = number + _CUTS_SKIPPED
        if begun and TRAINING in state.sizes and state.cut_epoch == state.ledger.epoch(TRAINING):
            state.cut_epoch -= 1

    def adopt(self, *, node: str, place: int | None = None) -> None:
        """Adds a worker that was started after the snapshot. `place`: the one that it took, if that is known."""
        roster = self._state.roster
        role, _, number = node.rpartition("-")
        if node in roster.nodes:
            return
        roster.next_number[role] = max(roster.next_number.get(role, 0), int(number) + 1)
        if place is not None and place < roster.targets[role]:
            # Whoever had it before is gone, or on its way out, and will be found to be.
            slot = place
        else:
            # It may be one slot more than there are places, until the node that it replaces turns out to be gone.
            used = {n.slot for n in roster.alive(role)}
            slot = next(slot for slot in range(len(used) + 1) if slot not in used)
        roster.nodes[node] = Node(
            name=node, role=role, number=int(number), slot=slot, phase=NodePhase.RUNNING
        )
        if roster.run_to_their_end:
            roster.nodes[node].incarnation = "process"

    def skip_number(self, *, role: str, number: int) -> None:
        """Raises the next node number above this one, which was started after the snapshot."""
        roster = self._state.roster
        if role == "worker":
            self._expected.append(f"{role}-{number}")
        roster.next_number[role] = max(roster.next_number.get(role, 0), number + 1)

    def raise_generation(self, *, above: int) -> None:
        """Rolls back to the checkpoint: the model was lost after the snapshot."""
        lose_model(self._state, above=above)

    def tell(
        self,
        *,
        worker: str,
        generation: int,
        seen_generation: int,
        cut: int,
        sizes: dict[str, int],
        epochs_ended: list[dict[str, Any]],
        shards: list[dict[str, Any]],
    ) -> list[int]:
        """Takes the report of a worker. Returns the leases that it must drop."""
        state = self._state
        reports = [ReportedShard(**shard) for shard in shards]
        held = [shard.lease_id for shard in reports if shard.held]
        node = state.roster.nodes.get(worker)
        if not self.is_collecting or worker in self.reported or node is None or not node.alive:
            mine = {lease.lease_id for lease in state.ledger.held_by(worker)}
            return [lease_id for lease_id in held if lease_id not in mine]
        self._announce(sizes)
        self.reported.append(worker)
        state.cuts_passed = max(state.cuts_passed, cut + _CUTS_SKIPPED)
        # Higher than those of the snapshot by more than is skipped, if a master before this one began with it too.
        ledger_reclaim.skip_number(state.ledger, max((shard.lease_id for shard in reports), default=0))
        if seen_generation > state.generation:
            lose_model(state, above=seen_generation)
        if generation != state.generation:
            return held
        self._complete_epochs(epochs_ended)
        lost = []
        # The newest first: they show which epochs are over.
        for shard in sorted(reports, key=lambda shard: -shard.lease_id):
            if not self._reclaim(worker, shard):
                lost.append(shard.lease_id)
        return lost

    def close(self) -> None:
        """Ends collecting. What no worker reported is trained again; if all have reported, it had not been done."""
        if not self.is_collecting:
            return
        self.phase = ReclaimPhase.DONE
        incomplete = any(worker not in self.reported for worker in self._expected)
        for dataset, ranges in self._unclaimed.items():
            if incomplete and dataset in self._state.ledger.datasets():
                ledger_reclaim.count_unclaimed(self._state.ledger, dataset, ranges)
        self.forget()
        self.reported, self._expected, self._snapshot_next_lease = [], [], 0
        state = self._state
        if state.plan.kind == "evaluate" and EVALUATION in state.sizes and not state.results:
            state.evaluating.begin(number=state.cuts_passed + 1, epoch=-1)

    def forget(self) -> None:
        """Drops what is unclaimed: the ledger was rolled back to a checkpoint, which counts all of it as
        trained again.
        """
        self._unclaimed.clear()
        self._snapshot_batches.clear()

    # -- reports ---------------------------------------------------------------------------------------------

    def _announce(self, sizes: dict[str, int]) -> None:
        for dataset, size in sizes.items():
            if self._state.plan.kind != "evaluate":
                self._state.work.announce(dataset=dataset, size=size)
            else:
                # Its evaluation begins when all reports are in.
                self._state.sizes.setdefault(dataset, size)

    def _complete_epochs(self, ended: list[dict[str, Any]]) -> None:
        """Completes epochs whose end callbacks have seen."""
        state = self._state
        known = state.epochs_ended[-1]["epoch"] if state.epochs_ended else -1
        newer = [epoch for epoch in ended if epoch["epoch"] > known]
        if not newer or TRAINING not in state.sizes:
            return
        state.epochs_ended += newer
        last = newer[-1]["epoch"]
        if last >= state.ledger.epoch(TRAINING):
            ledger_reclaim.complete_epoch(state.ledger, TRAINING, last)
        state.cut_epoch = max(state.cut_epoch, last)
        state.told_epoch = max(state.told_epoch, last)

    def _reclaim(self, worker: str, shard: ReportedShard) -> bool:
        """False if the worker must drop it."""
        ledger = self._state.ledger
        news = shard.lease_id in self._snapshot_batches or shard.lease_id >= self._snapshot_next_lease
        if not news or shard.dataset not in ledger.datasets():
            # Its end is in the snapshot.
            return not shard.held
        try:
            if shard.position > shard.start:
                done, leased = ledger_reclaim.claim_done(
                    ledger, shard.dataset, epoch=shard.epoch, start=shard.start, end=shard.position
                )
                self._add_unclaimed(shard.dataset, leased)
                if done:
                    ledger.steps += max(0, shard.batches - self._snapshot_batches.get(shard.lease_id, 0))
            if not shard.held or shard.position >= shard.end:
                return True
            kept, leased = ledger_reclaim.claim_lease(
                ledger,
                Lease(
                    lease_id=shard.lease_id,
                    dataset=shard.dataset,
                    worker=worker,
                    epoch=shard.epoch,
                    start=shard.start,
                    end=shard.end,
                    failures=0,
                    position=shard.position,
                    batches=shard.batches,
                ),
                atomic=shard.atomic,
            )
            self._add_unclaimed(shard.dataset, leased)
        except LedgerError:
            # Of another data set with the same name.
            return not shard.held
        return kept

    def _add_unclaimed(self, dataset: str, leased: list[tuple[int, int, int]]) -> None:
        self._unclaimed.setdefault(dataset, []).extend(leased)

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def is_collecting(self) -> bool:
        return self.phase is ReclaimPhase.COLLECTING

    @property
    def is_complete(self) -> bool:
        """Every live worker has reported."""
        return all(node.name in self.reported for node in self._state.roster.alive("worker") if node.begun)

    def waits_for(self, worker: str) -> bool:
        """Whether calls of this worker have to wait until it has reported."""
        return self.is_collecting and worker not in self.reported

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "lineage": self.lineage,
            "phase": self.phase.value,
            "reported": self.reported,
            "expected": self._expected,
            "snapshot_batches": [[lease_id, batches] for lease_id, batches in self._snapshot_batches.items()],
            "snapshot_next_lease": self._snapshot_next_lease,
            "unclaimed": self._unclaimed,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.lineage = snapshot["lineage"]
        self.phase = ReclaimPhase(snapshot["phase"])
        self.reported = list(snapshot["reported"])
        self._expected = list(snapshot["expected"])
        self._snapshot_batches = dict(snapshot["snapshot_batches"])
        self._snapshot_next_lease = snapshot["snapshot_next_lease"]
        self._unclaimed = {
            dataset: [(epoch, start, end) for epoch, start, end in ranges]
            for dataset, ranges in snapshot["unclaimed"].items()
        }
